// A constant table of 256 bytes: byte i is in bits 8i and up of BYTES. Each look-up has a table of its own, as in
// weld_table.
module weld_rom #(
    parameter [2047:0] BYTES = 0
) (
    input [7:0] index,
    output [7:0] data
);
    // verilator tracing_off
    reg [7:0] words [0:255];
    // verilator tracing_on
    integer i;

    initial for (i = 0; i < 256; i = i + 1) words[i] = BYTES[8*i +: 8];

    assign data = words[index];
endmodule
