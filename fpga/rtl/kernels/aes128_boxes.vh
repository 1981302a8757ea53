    // Written by gen_aes128.py, which says what it is. Included inside of a module.
    localparam [2047:0] BOX = {
        128'h16bb54b00f2d99416842e6bf0d89a18c,
        128'hdf2855cee9871e9b948ed9691198f8e1,
        128'h9e1dc186b95735610ef6034866b53e70,
        128'h8a8bbd4b1f74dde8c6b4a61c2e2578ba,
        128'h08ae7a65eaf4566ca94ed58d6d37c8e7,
        128'h79e4959162acd3c25c2406490a3a32e0,
        128'hdb0b5ede14b8ee4688902a22dc4f8160,
        128'h73195d643d7ea7c41744975fec130ccd,
        128'hd2f3ff1021dab6bcf5389d928f40a351,
        128'ha89f3c507f02f94585334d43fbaaefd0,
        128'hcf584c4a39becb6a5bb1fc20ed00d153,
        128'h842fe329b3d63b52a05a6e1b1a2c8309,
        128'h75b227ebe28012079a059618c323c704,
        128'h1531d871f1e5a534ccf73f362693fdb7,
        128'hc072a49cafa2d4adf04759fa7dc982ca,
        128'h76abd7fe2b670130c56f6bf27b777c63
    };
    localparam [2047:0] INVERSE_BOX = {
        128'h7d0c2155631469e126d677ba7e042b17,
        128'h619953833cbbebc8b0f52aae4d3be0a0,
        128'hef9cc9939f7ae52d0d4ab519a97f5160,
        128'h5fec8027591012b131c7078833a8dd1f,
        128'hf45acd78fec0db9a2079d2c64b3e56fc,
        128'h1bbe18aa0e62b76f89c5291d711af147,
        128'h6edf751ce837f9e28535ade72274ac96,
        128'h73e6b4f0cecff297eadc674f4111913a,
        128'h6b8a130103bdafc1020f3fca8f1e2cd0,
        128'h0645b3b80558e4f70ad3bc8c00abd890,
        128'h849d8da75746155edab9edfd5048706c,
        128'h92b6655dcc5ca4d41698688664f6f872,
        128'h25d18b6d49a25b76b224d92866a12e08,
        128'h4ec3fa420b954cee3d23c2a632947b54,
        128'hcbe9dec444438e3487ff2f9b8239e37c,
        128'hfbd7f3819ea340bf38a53630d56a0952
    };
