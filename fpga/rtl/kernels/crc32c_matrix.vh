// Written by gen_crc32c.py, which says what it is. Included inside of a module.

// What 64 bytes add to the state.
function [31:0] crc_of_data;
    input [511:0] x;
    begin
        crc_of_data[0] = ^(x & {128'h1f91caf6386f2c25de2753181954cd1e, 128'hf5e1bbd961745c3ae969f40a5f513d79,
            128'hb5fd09987e8408f7ba1e130ded04e470, 128'h468f38caa6a136723dda585da660c35c});
        crc_of_data[1] = ^(x & {128'h3f2395ec70de584bbc4ea63032a99a3d, 128'hebc377b2c2e8b875d2d3e814bea27af3,
            128'h6bfa1330fd0811ef743c261bda09c8e0, 128'h8d1e71954d426ce47bb4b0bb4cc186b9});
        crc_of_data[2] = ^(x & {128'h7e472bd8e1bcb097789d4c606553347b, 128'hd786ef6585d170eba5a7d0297d44f5e6,
            128'hd7f42661fa1023dee8784c37b41391c1, 128'h1a3ce32a9a84d9c8f769617699830d72});
        crc_of_data[3] = ^(x & {128'hfc8e57b1c379612ef13a98c0caa668f7, 128'haf0ddecb0ba2e1d74b4fa052fa89ebcd,
            128'hafe84cc3f42047bdd0f0986f68272382, 128'h3479c6553509b391eed2c2ed33061ae4});
        crc_of_data[4] = ^(x & {128'he68d6595be9dee783c5262998c181cf1, 128'habfa064f76319f947ff6b4afaa42eae2,
            128'hea2d901f96c4878c1bff23d33d4aa374, 128'h2e7cb460ccb25151e07fdd87c06cf694});
        crc_of_data[5] = ^(x & {128'hd28b01dd4554f0d5a683962b0164f4fd, 128'ha215b7478d17631216849d550bd4e8bc,
            128'h61a629a7530d07ef8de054ab9791a298, 128'h1a76500b3fc594d1fd25e35226b92e74});
        crc_of_data[6] = ^(x & {128'hba87c94cb2c6cd8e93207f4e1b9d24e5, 128'hb1cad5567b5a9a1ec460cea048f8ec01,
            128'h76b15ad6d89e0728a1deba5ac227a140, 128'h726398dcd92a1fd1c7919ef9eb129fb4});
        crc_of_data[7] = ^(x & {128'h6a9e586f5de2b738f867ad842e6e84d5, 128'h9674117597c1680761a8694acea0e57b,
            128'h589fbc35cfb806a6f9a367b8694ba6f0, 128'ha248097314f509d1b2f965ae7045fc34});
        crc_of_data[8] = ^(x & {128'hd53cb0debbc56e71f0cf5b085cdd09ab, 128'h2ce822eb2f82d00ec350d2959d41caf6,
            128'hb13f786b9f700d4df346cf70d2974de1, 128'h449012e629ea13a365f2cb5ce08bf869});
        crc_of_data[9] = ^(x & {128'hb5e8ab4b4fe5f0c63fb9e508a0eede48, 128'hac31fe0f3e71fc276fc8512165d2a894,
            128'hd783f94f4064126c5c938dec482a7fb2, 128'hcfaf1d06f5751134f63fcee46777338f});
        crc_of_data[10] = ^(x & {128'h74409c60a7a4cda9a15499095889718f, 128'had8247c71d97a47436f9564894f46c50,
            128'h1afafb06fe4c2c2f033908d57d501b15, 128'hd9d102c74c4b141bd1a5c595688ea443});
        crc_of_data[11] = ^(x & {128'he88138c14f499b5342a93212b112e31f, 128'h5b048f8e3b2f48e86df2ac9129e8d8a0,
            128'h35f5f60dfc98585e067211aafaa0362b, 128'hb3a2058e98962837a34b8b2ad11d4887});
        crc_of_data[12] = ^(x & {128'hce93bb74a6fc1a835b75373d7b710b20, 128'h43e8a4c5172acdea328cad280c808c39,
            128'hde16e58387b4b84bb6fa305818448827, 128'h21cb33d7978d661d7b4d4e08045a5252});
        crc_of_data[13] = ^(x & {128'h82b6bc1f7597192368cd3d62efb6db5e, 128'h7230f2534f21c7ee8c70ae5a4650250a,
            128'h09d0c29f71ed7860d7ea73bddd8df43e, 128'h05195f6589bbfa48cb40c44daed467f9});
        crc_of_data[14] = ^(x & {128'h1afcb2c8d3411e630fbd29ddc6397ba2, 128'h11805f7fff37d3e7f188a8bed3f1776d,
            128'ha65c8ca69d5ef83615caf476561f0c0c, 128'h4cbd8601b5d6c2e3ab5bd0c6fbc80caf});
        crc_of_data[15] = ^(x & {128'h35f96591a6823cc61f7a53bb8c72f744, 128'h2300befffe6fa7cfe311517da7e2eedb,
            128'h4cb9194d3abdf06c2b95e8ecac3e1818, 128'h997b0c036bad85c756b7a18df790195f});
        crc_of_data[16] = ^(x & {128'h6bf2cb234d04798c3ef4a77718e5ee88, 128'h46017dfffcdf4f9fc622a2fb4fc5ddb6,
            128'h9972329a757be0d8572bd1d9587c3031, 128'h32f61806d75b0b8ead6f431bef2032be});
        crc_of_data[17] = ^(x & {128'hd7e596469a08f3187de94eee31cbdd10, 128'h8c02fbfff9be9f3f8c4545f69f8bbb6d,
            128'h32e46534eaf7c1b0ae57a3b2b0f86062, 128'h65ec300daeb6171d5ade8637de40657d});
        crc_of_data[18] = ^(x & {128'hb05ae67b0c7eca1525f5cec47ac3773f, 128'hede44c2692096245f1e37fe760464ba3,
            128'hd035c3f1ab6b8b96e6b154688cf424b4, 128'h8d5758d1fbcd1848886754321ae009a7});
        crc_of_data[19] = ^(x & {128'h7f2406002092b80f95ccce90ecd22361, 128'h2e292394456698b10aaf0bc49fddaa3e,
            128'h15968e7b28531fda777cbbdcf4ecad19, 128'h5c218969513b06e32d14f03993a0d013});
        crc_of_data[20] = ^(x & {128'hfe480c004125701f2b999d21d9a446c2, 128'h5c5247288acd3162155e17893fbb547c,
            128'h2b2d1cf650a63fb4eef977b9e9d95a32, 128'hb84312d2a2760dc65a29e0732741a026});
        crc_of_data[21] = ^(x & {128'he301d2f6ba25cc1b8914695baa1c409a, 128'h4d45358874ee3efec3d5db1820279581,
            128'he3a73074dfc8779e67ecfc7e3eb65015, 128'h36091d6fe24d2dfe898998bbe8e38310});
        crc_of_data[22] = ^(x & {128'hd9926f1b4c24b412cc0f81af4d6c4c2a, 128'h6f6bd0c988a821c76ec2423a1f1e167a,
            128'h72b36971c114e7cb75c7ebf19068445a, 128'h2a9d0215623b6d8f2ec9692a77a7c57c});
        crc_of_data[23] = ^(x & {128'hacb514c0a026440046385046838c554a, 128'h2b361a4a70241fb434ed707e616d118d,
            128'h509bdb7bfcadc7615191c4eecdd46cc4, 128'h13b53ce062d7ed6c60488a09492f49a4});
        crc_of_data[24] = ^(x & {128'h46fbe3777823a4255257f3951e4c678a, 128'ha38d8f4d813c635280b314f69d8b1e63,
            128'h14cabf6f87df8635193d9ad076ac3df8, 128'h61e5410a630eecaafd4b4c4f343e5014});
        crc_of_data[25] = ^(x & {128'h8df7c6eef047484aa4afe72a3c98cf15, 128'h471b1e9b0278c6a5016629ed3b163cc6,
            128'h29957edf0fbf0c6a327b35a0ed587bf0, 128'hc3ca8214c61dd955fa96989e687ca028});
        crc_of_data[26] = ^(x & {128'h047e472bd8e1bcb097789d4c60655334, 128'h7bd786ef6585d170eba5a7d0297d44f5,
            128'he6d7f42661fa1023dee8784c37b41391, 128'hc11a3ce32a9a84d9c8f769617699830d});
        crc_of_data[27] = ^(x & {128'h08fc8e57b1c379612ef13a98c0caa668, 128'hf7af0ddecb0ba2e1d74b4fa052fa89eb,
            128'hcdafe84cc3f42047bdd0f0986f682723, 128'h823479c6553509b391eed2c2ed33061a});
        crc_of_data[28] = ^(x & {128'h11f91caf6386f2c25de2753181954cd1, 128'hef5e1bbd961745c3ae969f40a5f513d7,
            128'h9b5fd09987e8408f7ba1e130ded04e47, 128'h0468f38caa6a136723dda585da660c35});
        crc_of_data[29] = ^(x & {128'h23f2395ec70de584bbc4ea63032a99a3, 128'hdebc377b2c2e8b875d2d3e814bea27af,
            128'h36bfa1330fd0811ef743c261bda09c8e, 128'h08d1e71954d426ce47bb4b0bb4cc186b});
        crc_of_data[30] = ^(x & {128'h47e472bd8e1bcb097789d4c606553347, 128'hbd786ef6585d170eba5a7d0297d44f5e,
            128'h6d7f42661fa1023dee8784c37b41391c, 128'h11a3ce32a9a84d9c8f769617699830d7});
        crc_of_data[31] = ^(x & {128'h8fc8e57b1c379612ef13a98c0caa668f, 128'h7af0ddecb0ba2e1d74b4fa052fa89ebc,
            128'hdafe84cc3f42047bdd0f0986f6827238, 128'h23479c6553509b391eed2c2ed33061ae});
    end
endfunction

// The state after 64 bytes.
function [31:0] crc_after_flit;
    input [31:0] x;
    begin
        crc_after_flit[0] = ^(x & 32'ha660c35c);
        crc_after_flit[1] = ^(x & 32'h4cc186b9);
        crc_after_flit[2] = ^(x & 32'h99830d72);
        crc_after_flit[3] = ^(x & 32'h33061ae4);
        crc_after_flit[4] = ^(x & 32'hc06cf694);
        crc_after_flit[5] = ^(x & 32'h26b92e74);
        crc_after_flit[6] = ^(x & 32'heb129fb4);
        crc_after_flit[7] = ^(x & 32'h7045fc34);
        crc_after_flit[8] = ^(x & 32'he08bf869);
        crc_after_flit[9] = ^(x & 32'h6777338f);
        crc_after_flit[10] = ^(x & 32'h688ea443);
        crc_after_flit[11] = ^(x & 32'hd11d4887);
        crc_after_flit[12] = ^(x & 32'h045a5252);
        crc_after_flit[13] = ^(x & 32'haed467f9);
        crc_after_flit[14] = ^(x & 32'hfbc80caf);
        crc_after_flit[15] = ^(x & 32'hf790195f);
        crc_after_flit[16] = ^(x & 32'hef2032be);
        crc_after_flit[17] = ^(x & 32'hde40657d);
        crc_after_flit[18] = ^(x & 32'h1ae009a7);
        crc_after_flit[19] = ^(x & 32'h93a0d013);
        crc_after_flit[20] = ^(x & 32'h2741a026);
        crc_after_flit[21] = ^(x & 32'he8e38310);
        crc_after_flit[22] = ^(x & 32'h77a7c57c);
        crc_after_flit[23] = ^(x & 32'h492f49a4);
        crc_after_flit[24] = ^(x & 32'h343e5014);
        crc_after_flit[25] = ^(x & 32'h687ca028);
        crc_after_flit[26] = ^(x & 32'h7699830d);
        crc_after_flit[27] = ^(x & 32'hed33061a);
        crc_after_flit[28] = ^(x & 32'hda660c35);
        crc_after_flit[29] = ^(x & 32'hb4cc186b);
        crc_after_flit[30] = ^(x & 32'h699830d7);
        crc_after_flit[31] = ^(x & 32'hd33061ae);
    end
endfunction

// The state before 1 zero bytes.
function [31:0] crc_before_1;
    input [31:0] x;
    begin
        crc_before_1[0] = ^(x & 32'h41000000);
        crc_before_1[1] = ^(x & 32'h82000000);
        crc_before_1[2] = ^(x & 32'h04000000);
        crc_before_1[3] = ^(x & 32'h08000000);
        crc_before_1[4] = ^(x & 32'h51000000);
        crc_before_1[5] = ^(x & 32'he3000000);
        crc_before_1[6] = ^(x & 32'h87000000);
        crc_before_1[7] = ^(x & 32'h4f000000);
        crc_before_1[8] = ^(x & 32'h9e000001);
        crc_before_1[9] = ^(x & 32'h7d000002);
        crc_before_1[10] = ^(x & 32'hbb000004);
        crc_before_1[11] = ^(x & 32'h76000008);
        crc_before_1[12] = ^(x & 32'had000010);
        crc_before_1[13] = ^(x & 32'h1b000020);
        crc_before_1[14] = ^(x & 32'h77000040);
        crc_before_1[15] = ^(x & 32'hee000080);
        crc_before_1[16] = ^(x & 32'hdc000100);
        crc_before_1[17] = ^(x & 32'hb8000200);
        crc_before_1[18] = ^(x & 32'h31000400);
        crc_before_1[19] = ^(x & 32'h23000800);
        crc_before_1[20] = ^(x & 32'h46001000);
        crc_before_1[21] = ^(x & 32'hcd002000);
        crc_before_1[22] = ^(x & 32'hdb004000);
        crc_before_1[23] = ^(x & 32'hf7008000);
        crc_before_1[24] = ^(x & 32'haf010000);
        crc_before_1[25] = ^(x & 32'h5e020000);
        crc_before_1[26] = ^(x & 32'hfd040000);
        crc_before_1[27] = ^(x & 32'hfa080000);
        crc_before_1[28] = ^(x & 32'hf4100000);
        crc_before_1[29] = ^(x & 32'he8200000);
        crc_before_1[30] = ^(x & 32'hd0400000);
        crc_before_1[31] = ^(x & 32'ha0800000);
    end
endfunction

// The state before 2 zero bytes.
function [31:0] crc_before_2;
    input [31:0] x;
    begin
        crc_before_2[0] = ^(x & 32'h7f410000);
        crc_before_2[1] = ^(x & 32'hfe820000);
        crc_before_2[2] = ^(x & 32'hfd040000);
        crc_before_2[3] = ^(x & 32'hfa080000);
        crc_before_2[4] = ^(x & 32'h8b510000);
        crc_before_2[5] = ^(x & 32'h69e30000);
        crc_before_2[6] = ^(x & 32'hac870000);
        crc_before_2[7] = ^(x & 32'h264f0000);
        crc_before_2[8] = ^(x & 32'h4c9e0000);
        crc_before_2[9] = ^(x & 32'he67d0000);
        crc_before_2[10] = ^(x & 32'hb3bb0000);
        crc_before_2[11] = ^(x & 32'h67760000);
        crc_before_2[12] = ^(x & 32'hb1ad0000);
        crc_before_2[13] = ^(x & 32'h1c1b0000);
        crc_before_2[14] = ^(x & 32'h47770000);
        crc_before_2[15] = ^(x & 32'h8eee0000);
        crc_before_2[16] = ^(x & 32'h1ddc0001);
        crc_before_2[17] = ^(x & 32'h3bb80002);
        crc_before_2[18] = ^(x & 32'h08310004);
        crc_before_2[19] = ^(x & 32'h6f230008);
        crc_before_2[20] = ^(x & 32'hde460010);
        crc_before_2[21] = ^(x & 32'hc3cd0020);
        crc_before_2[22] = ^(x & 32'hf8db0040);
        crc_before_2[23] = ^(x & 32'h8ef70080);
        crc_before_2[24] = ^(x & 32'h62af0100);
        crc_before_2[25] = ^(x & 32'hc55e0200);
        crc_before_2[26] = ^(x & 32'hf5fd0400);
        crc_before_2[27] = ^(x & 32'hebfa0800);
        crc_before_2[28] = ^(x & 32'hd7f41000);
        crc_before_2[29] = ^(x & 32'hafe82000);
        crc_before_2[30] = ^(x & 32'h5fd04000);
        crc_before_2[31] = ^(x & 32'hbfa08000);
    end
endfunction

// The state before 4 zero bytes.
function [31:0] crc_before_4;
    input [31:0] x;
    begin
        crc_before_4[0] = ^(x & 32'h7b3d7f41);
        crc_before_4[1] = ^(x & 32'hf67afe82);
        crc_before_4[2] = ^(x & 32'hecf5fd04);
        crc_before_4[3] = ^(x & 32'hd9ebfa08);
        crc_before_4[4] = ^(x & 32'hc8ea8b51);
        crc_before_4[5] = ^(x & 32'heae869e3);
        crc_before_4[6] = ^(x & 32'haeedac87);
        crc_before_4[7] = ^(x & 32'h26e6264f);
        crc_before_4[8] = ^(x & 32'h4dcc4c9e);
        crc_before_4[9] = ^(x & 32'he0a5e67d);
        crc_before_4[10] = ^(x & 32'hba76b3bb);
        crc_before_4[11] = ^(x & 32'h74ed6776);
        crc_before_4[12] = ^(x & 32'h92e7b1ad);
        crc_before_4[13] = ^(x & 32'h5ef21c1b);
        crc_before_4[14] = ^(x & 32'hc6d94777);
        crc_before_4[15] = ^(x & 32'h8db28eee);
        crc_before_4[16] = ^(x & 32'h1b651ddc);
        crc_before_4[17] = ^(x & 32'h36ca3bb8);
        crc_before_4[18] = ^(x & 32'h16a90831);
        crc_before_4[19] = ^(x & 32'h566f6f23);
        crc_before_4[20] = ^(x & 32'hacdede46);
        crc_before_4[21] = ^(x & 32'h2280c3cd);
        crc_before_4[22] = ^(x & 32'h3e3cf8db);
        crc_before_4[23] = ^(x & 32'h07448ef7);
        crc_before_4[24] = ^(x & 32'h75b462af);
        crc_before_4[25] = ^(x & 32'heb68c55e);
        crc_before_4[26] = ^(x & 32'hadecf5fd);
        crc_before_4[27] = ^(x & 32'h5bd9ebfa);
        crc_before_4[28] = ^(x & 32'hb7b3d7f4);
        crc_before_4[29] = ^(x & 32'h6f67afe8);
        crc_before_4[30] = ^(x & 32'hdecf5fd0);
        crc_before_4[31] = ^(x & 32'hbd9ebfa0);
    end
endfunction

// The state before 8 zero bytes.
function [31:0] crc_before_8;
    input [31:0] x;
    begin
        crc_before_8[0] = ^(x & 32'haa0d4bab);
        crc_before_8[1] = ^(x & 32'h541a9756);
        crc_before_8[2] = ^(x & 32'ha8352ead);
        crc_before_8[3] = ^(x & 32'h506a5d5b);
        crc_before_8[4] = ^(x & 32'h0ad9f11c);
        crc_before_8[5] = ^(x & 32'hbfbea992);
        crc_before_8[6] = ^(x & 32'hd570188e);
        crc_before_8[7] = ^(x & 32'h00ed7ab6);
        crc_before_8[8] = ^(x & 32'h01daf56c);
        crc_before_8[9] = ^(x & 32'ha9b8a173);
        crc_before_8[10] = ^(x & 32'hf97c094c);
        crc_before_8[11] = ^(x & 32'hf2f81299);
        crc_before_8[12] = ^(x & 32'h4ffd6e99);
        crc_before_8[13] = ^(x & 32'h35f79698);
        crc_before_8[14] = ^(x & 32'hc1e2669b);
        crc_before_8[15] = ^(x & 32'h83c4cd37);
        crc_before_8[16] = ^(x & 32'h07899a6f);
        crc_before_8[17] = ^(x & 32'h0f1334de);
        crc_before_8[18] = ^(x & 32'hb42b2217);
        crc_before_8[19] = ^(x & 32'hc25b0f85);
        crc_before_8[20] = ^(x & 32'h84b61f0a);
        crc_before_8[21] = ^(x & 32'ha36175be);
        crc_before_8[22] = ^(x & 32'heccfa0d7);
        crc_before_8[23] = ^(x & 32'h73920a05);
        crc_before_8[24] = ^(x & 32'h4d295fa1);
        crc_before_8[25] = ^(x & 32'h9a52bf42);
        crc_before_8[26] = ^(x & 32'h9ea8352e);
        crc_before_8[27] = ^(x & 32'h3d506a5d);
        crc_before_8[28] = ^(x & 32'h7aa0d4ba);
        crc_before_8[29] = ^(x & 32'hf541a975);
        crc_before_8[30] = ^(x & 32'hea8352ea);
        crc_before_8[31] = ^(x & 32'hd506a5d5);
    end
endfunction

// The state before 16 zero bytes.
function [31:0] crc_before_16;
    input [31:0] x;
    begin
        crc_before_16[0] = ^(x & 32'h7cea1cdd);
        crc_before_16[1] = ^(x & 32'hf9d439bb);
        crc_before_16[2] = ^(x & 32'hf3a87376);
        crc_before_16[3] = ^(x & 32'he750e6ed);
        crc_before_16[4] = ^(x & 32'hb24bd106);
        crc_before_16[5] = ^(x & 32'h187dbed1);
        crc_before_16[6] = ^(x & 32'h4c11617f);
        crc_before_16[7] = ^(x & 32'he4c8de22);
        crc_before_16[8] = ^(x & 32'hc991bc45);
        crc_before_16[9] = ^(x & 32'hefc96456);
        crc_before_16[10] = ^(x & 32'ha378d470);
        crc_before_16[11] = ^(x & 32'h46f1a8e1);
        crc_before_16[12] = ^(x & 32'hf1094d1e);
        crc_before_16[13] = ^(x & 32'h9ef886e0);
        crc_before_16[14] = ^(x & 32'h411b111c);
        crc_before_16[15] = ^(x & 32'h82362238);
        crc_before_16[16] = ^(x & 32'h046c4471);
        crc_before_16[17] = ^(x & 32'h08d888e2);
        crc_before_16[18] = ^(x & 32'h6d5b0d19);
        crc_before_16[19] = ^(x & 32'ha65c06ee);
        crc_before_16[20] = ^(x & 32'h4cb80ddd);
        crc_before_16[21] = ^(x & 32'he59a0767);
        crc_before_16[22] = ^(x & 32'hb7de1213);
        crc_before_16[23] = ^(x & 32'h135638fb);
        crc_before_16[24] = ^(x & 32'h5a466d2b);
        crc_before_16[25] = ^(x & 32'hb48cda57);
        crc_before_16[26] = ^(x & 32'h15f3a873);
        crc_before_16[27] = ^(x & 32'h2be750e6);
        crc_before_16[28] = ^(x & 32'h57cea1cd);
        crc_before_16[29] = ^(x & 32'haf9d439b);
        crc_before_16[30] = ^(x & 32'h5f3a8737);
        crc_before_16[31] = ^(x & 32'hbe750e6e);
    end
endfunction

// The state before 32 zero bytes.
function [31:0] crc_before_32;
    input [31:0] x;
    begin
        crc_before_32[0] = ^(x & 32'h10ebe8e5);
        crc_before_32[1] = ^(x & 32'h21d7d1ca);
        crc_before_32[2] = ^(x & 32'h43afa395);
        crc_before_32[3] = ^(x & 32'h875f472b);
        crc_before_32[4] = ^(x & 32'h1e5566b3);
        crc_before_32[5] = ^(x & 32'h2c412583);
        crc_before_32[6] = ^(x & 32'h4869a3e2);
        crc_before_32[7] = ^(x & 32'h8038af20);
        crc_before_32[8] = ^(x & 32'h00715e40);
        crc_before_32[9] = ^(x & 32'h10095464);
        crc_before_32[10] = ^(x & 32'h30f9402c);
        crc_before_32[11] = ^(x & 32'h61f28058);
        crc_before_32[12] = ^(x & 32'hd30ee855);
        crc_before_32[13] = ^(x & 32'hb6f6384f);
        crc_before_32[14] = ^(x & 32'h7d07987a);
        crc_before_32[15] = ^(x & 32'hfa0f30f4);
        crc_before_32[16] = ^(x & 32'hf41e61e9);
        crc_before_32[17] = ^(x & 32'he83cc3d3);
        crc_before_32[18] = ^(x & 32'hc0926f43);
        crc_before_32[19] = ^(x & 32'h91cf3662);
        crc_before_32[20] = ^(x & 32'h239e6cc4);
        crc_before_32[21] = ^(x & 32'h57d7316d);
        crc_before_32[22] = ^(x & 32'hbf458a3f);
        crc_before_32[23] = ^(x & 32'h6e60fc9a);
        crc_before_32[24] = ^(x & 32'hcc2a11d1);
        crc_before_32[25] = ^(x & 32'h985423a3);
        crc_before_32[26] = ^(x & 32'h2043afa3);
        crc_before_32[27] = ^(x & 32'h40875f47);
        crc_before_32[28] = ^(x & 32'h810ebe8e);
        crc_before_32[29] = ^(x & 32'h021d7d1c);
        crc_before_32[30] = ^(x & 32'h043afa39);
        crc_before_32[31] = ^(x & 32'h0875f472);
    end
endfunction

// The state before 64 zero bytes.
function [31:0] crc_before_64;
    input [31:0] x;
    begin
        crc_before_64[0] = ^(x & 32'h6d491fb6);
        crc_before_64[1] = ^(x & 32'hda923f6d);
        crc_before_64[2] = ^(x & 32'hb5247edb);
        crc_before_64[3] = ^(x & 32'h6a48fdb6);
        crc_before_64[4] = ^(x & 32'hb9d8e4da);
        crc_before_64[5] = ^(x & 32'h1ef8d602);
        crc_before_64[6] = ^(x & 32'h50b8b3b3);
        crc_before_64[7] = ^(x & 32'hcc3878d1);
        crc_before_64[8] = ^(x & 32'h9870f1a2);
        crc_before_64[9] = ^(x & 32'h5da8fcf2);
        crc_before_64[10] = ^(x & 32'hd618e652);
        crc_before_64[11] = ^(x & 32'hac31cca5);
        crc_before_64[12] = ^(x & 32'h352a86fd);
        crc_before_64[13] = ^(x & 32'h071c124d);
        crc_before_64[14] = ^(x & 32'h63713b2d);
        crc_before_64[15] = ^(x & 32'hc6e2765b);
        crc_before_64[16] = ^(x & 32'h8dc4ecb6);
        crc_before_64[17] = ^(x & 32'h1b89d96c);
        crc_before_64[18] = ^(x & 32'h5a5aad6e);
        crc_before_64[19] = ^(x & 32'hd9fc456a);
        crc_before_64[20] = ^(x & 32'hb3f88ad4);
        crc_before_64[21] = ^(x & 32'h0ab80a1e);
        crc_before_64[22] = ^(x & 32'h78390b8a);
        crc_before_64[23] = ^(x & 32'h9d3b08a2);
        crc_before_64[24] = ^(x & 32'h573f0ef2);
        crc_before_64[25] = ^(x & 32'hae7e1de4);
        crc_before_64[26] = ^(x & 32'h31b5247e);
        crc_before_64[27] = ^(x & 32'h636a48fd);
        crc_before_64[28] = ^(x & 32'hc6d491fb);
        crc_before_64[29] = ^(x & 32'h8da923f6);
        crc_before_64[30] = ^(x & 32'h1b5247ed);
        crc_before_64[31] = ^(x & 32'h36a48fdb);
    end
endfunction
