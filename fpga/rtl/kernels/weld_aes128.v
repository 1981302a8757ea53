// aes128: AES with a key of 128 bits, block by block (FIPS 197; ECB).
//
// Parameters: 0 to encrypt or 1 to decrypt, the key. Four blocks, one flit, enter a pipeline of ten rounds in every
// cycle. The round keys are made after the parameters, one a cycle.
//
// Inside, bytes are in planes: plane p, in bits LANES*p and up, has bit p of each byte, that of byte i in its bit i.
// Byte 4c + r of a block is row r of column c. What is done to all bytes alike is then a few operations on a plane.

// The S-box and its inverse, on as many bytes as there are lanes.
module weld_aes_box #(
    parameter LANES = 64
) (
    input decrypt,
    input [8*LANES-1:0] in,
    output [8*LANES-1:0] out
);
    // verilator tracing_off
    wire [LANES-1:0] x0, x1, x2, x3, x4, x5, x6, x7;
    reg [LANES-1:0] y0, y1, y2, y3, y4, y5, y6, y7;
    `include "aes128_box.vh"
    assign {x7, x6, x5, x4, x3, x2, x1, x0} = in;
    assign out = {y7, y6, y5, y4, y3, y2, y1, y0};
endmodule

// 5.1.3, or 5.3.3 if `inverse`, whose matrix is that of 5.1.3 times that of (5, 0, 4, 0).
module weld_aes_mix #(
    parameter LANES = 64
) (
    input inverse,
    input [8*LANES-1:0] in,
    output [8*LANES-1:0] out
);
    // verilator tracing_off
    localparam COLUMNS = LANES / 4;

    // The byte of the next row; of the one after that.
    function [LANES-1:0] next;
        input [LANES-1:0] x;
        next = ((x >> 1) & {COLUMNS{4'h7}}) | ((x << 3) & {COLUMNS{4'h8}});
    endfunction

    function [LANES-1:0] opposite;
        input [LANES-1:0] x;
        opposite = ((x >> 2) & {COLUMNS{4'h3}}) | ((x << 2) & {COLUMNS{4'hc}});
    endfunction

    // Times x, modulo x^8 + x^4 + x^3 + x + 1: each plane is the one below, and the highest is added to three.
    function [8*LANES-1:0] twice;
        input [8*LANES-1:0] x;
        reg [LANES-1:0] high;
        begin
            high = x[7*LANES +: LANES];
            twice = {x[4*LANES +: 3*LANES], x[3*LANES +: LANES] ^ high, x[2*LANES +: LANES] ^ high, x[LANES +: LANES],
                x[0 +: LANES] ^ high, high};
        end
    endfunction

    wire [8*LANES-1:0] apart, y, z, others;
    wire [8*LANES-1:0] apart_4 = twice(twice(apart));
    wire [8*LANES-1:0] z_2 = twice(z);

    genvar p;
    generate
        for (p = 0; p < 8; p = p + 1) begin : plane
            assign apart[LANES*p +: LANES] = in[LANES*p +: LANES] ^ opposite(in[LANES*p +: LANES]);
            assign y[LANES*p +: LANES] = in[LANES*p +: LANES] ^ (apart_4[LANES*p +: LANES] & {LANES{inverse}});
            assign z[LANES*p +: LANES] = y[LANES*p +: LANES] ^ next(y[LANES*p +: LANES]);
            assign others[LANES*p +: LANES] = next(y[LANES*p +: LANES]) ^ opposite(z[LANES*p +: LANES]);
        end
    endgenerate
    assign out = z_2 ^ others;
endmodule

// One round of four blocks, with its key. When decrypting, rounds have the order of the equivalent inverse cipher
// (5.3.5): that of encrypting, with keys that have been through 5.3.3.
(* keep_hierarchy *)
module weld_aes_round #(
    parameter FINAL = 0
) (
    input clk,
    input decrypt,
    input key_put,
    input [127:0] key,
    input go,
    input [511:0] in,
    output reg [511:0] out
);
    // verilator tracing_off
    // 5.1.2: row r comes from r columns further on, or back.
    function [63:0] shift;
        input [63:0] x;
        input back;
        reg [63:0] by_1, by_2, by_3;
        begin
            by_1 = ((x >> 4) & {4{16'h0fff}}) | ((x << 12) & {4{16'hf000}});
            by_2 = ((x >> 8) & {4{16'h00ff}}) | ((x << 8) & {4{16'hff00}});
            by_3 = ((x >> 12) & {4{16'h000f}}) | ((x << 4) & {4{16'hfff0}});
            shift = (x & {16{4'h1}}) | (by_2 & {16{4'h4}}) |
                (back ? (by_3 & {16{4'h2}}) | (by_1 & {16{4'h8}}) : (by_1 & {16{4'h2}}) | (by_3 & {16{4'h8}}));
        end
    endfunction

    reg [127:0] round_key;
    wire [511:0] boxed, shifted, mixed, keys;

    weld_aes_box #(.LANES(64)) box (.decrypt(decrypt), .in(in), .out(boxed));

    genvar p;
    generate
        for (p = 0; p < 8; p = p + 1) begin : plane
            assign shifted[64*p +: 64] = shift(boxed[64*p +: 64], decrypt);
            assign keys[64*p +: 64] = {4{round_key[16*p +: 16]}};
        end
        if (FINAL != 0) begin : as_it_is
            assign mixed = shifted;
        end else begin : columns
            weld_aes_mix #(.LANES(64)) mix (.inverse(decrypt), .in(shifted), .out(mixed));
        end
    endgenerate

    always @(posedge clk) begin
        if (key_put) round_key <= key;
        if (go) out <= mixed ^ keys;
    end
endmodule

module weld_aes128 (
    input clk,
    input rst,
    input p_valid,
    output p_ready,
    input [31:0] p_data,
    input p_keep,
    input p_last,
    input s_valid,
    output s_ready,
    input [511:0] s_data,
    input [6:0] s_len,
    input s_last,
    output m_valid,
    input m_ready,
    output [511:0] m_data,
    output [6:0] m_len,
    output m_last,
    output [1:0] status,
    input [31:0] d_port,
    output [31:0] d_value,
    output d_known
);
    localparam ROUNDS = 10;

    wire done;
    wire [7:0] count;
    wire [31:0] direction;
    wire [127:0] key;
    reg broken, ready;
    wire good = count == 8'd5 && direction <= 32'd1;
    wire runs = ready && !broken;
    wire decrypt = direction[0];

    weld_params #(.WORDS(5)) params (
        .clk(clk), .rst(rst), .p_valid(p_valid), .p_ready(p_ready), .p_data(p_data), .p_keep(p_keep), .p_last(p_last),
        .done(done), .count(count), .words({key, direction})
    );

    // Bit 8i + j of eight bytes is exchanged with bit 8j + i: bytes become eight lanes of each plane, and back.
    function [63:0] turned;
        input [63:0] x;
        reg [63:0] y;
        begin
            y = (x & 64'haa55aa55aa55aa55) | ((x & 64'h00aa00aa00aa00aa) << 7) | ((x >> 7) & 64'h00aa00aa00aa00aa);
            y = (y & 64'hcccc3333cccc3333) | ((y & 64'h0000cccc0000cccc) << 14) | ((y >> 14) & 64'h0000cccc0000cccc);
            turned = (y & 64'hf0f0f0f00f0f0f0f) | ((y & 64'h00000000f0f0f0f0) << 28) |
                ((y >> 28) & 64'h00000000f0f0f0f0);
        end
    endfunction

    // 5.2: the round key after this one. The last word, substituted, is added to the first, that to the second, and on.
    reg [127:0] next_key;
    reg [7:0] constant;
    reg [3:0] made;
    wire making = done && good && !ready;
    wire first = made == 0;
    wire [127:0] key_planes, this_key, key_after, unmixed_key;
    wire [7:0] this_constant = first ? 8'd1 : constant;
    wire [31:0] last_word, boxed;
    assign this_key = first ? key_planes : next_key;

    weld_aes_box #(.LANES(4)) key_box (.decrypt(1'b0), .in(last_word), .out(boxed));
    weld_aes_mix #(.LANES(16)) key_mix (.inverse(1'b1), .in(this_key), .out(unmixed_key));

    // Which round it is for, 0 for what is added before them.
    wire [3:0] place = decrypt ? 4'd10 - made : made;
    wire [127:0] placed_key = decrypt && !first && made != 4'd10 ? unmixed_key : this_key;
    reg [127:0] whitening;

    // What goes along with the flits.
    reg [ROUNDS:0] have, last;
    reg [7*(ROUNDS+1)-1:0] len;
    wire [511:0] s_turned, in_planes, whitened, m_lanes, m_turned;
    wire [512*(ROUNDS+1)-1:0] planes;
    reg [511:0] entered;

    wire room;
    wire go = !have[ROUNDS] || room;
    wire take = s_valid && s_ready;
    assign s_ready = runs && go;

    wire [63:0] key_low = turned(key[63:0]);
    wire [63:0] key_high = turned(key[127:64]);
    genvar p, g;
    generate
        for (g = 0; g < 8; g = g + 1) begin : eight
            assign s_turned[64*g +: 64] = turned(s_data[64*g +: 64]);
            assign m_turned[64*g +: 64] = turned(m_lanes[64*g +: 64]);
        end
        for (p = 0; p < 8; p = p + 1) begin : plane
            for (g = 0; g < 8; g = g + 1) begin : lanes
                assign in_planes[64*p+8*g +: 8] = s_turned[64*g+8*p +: 8];
                assign m_lanes[64*g+8*p +: 8] = planes[512*ROUNDS+64*p+8*g +: 8];
            end
            assign whitened[64*p +: 64] = in_planes[64*p +: 64] ^ {4{whitening[16*p +: 16]}};

            assign key_planes[16*p +: 16] = {key_high[8*p +: 8], key_low[8*p +: 8]};
            wire [15:0] word = this_key[16*p +: 16];
            assign last_word[4*p +: 4] = word[15:12];
            wire [3:0] add = {boxed[4*p], boxed[4*p+3 -: 2], boxed[4*p+1] ^ this_constant[p]};
            wire [3:0] word_0 = word[3:0] ^ add;
            wire [3:0] word_1 = word[7:4] ^ word_0;
            wire [3:0] word_2 = word[11:8] ^ word_1;
            assign key_after[16*p +: 16] = {word[15:12] ^ word_2, word_2, word_1, word_0};
        end
        for (g = 1; g <= ROUNDS; g = g + 1) begin : rounds
            weld_aes_round #(.FINAL(g == ROUNDS)) step (
                .clk(clk), .decrypt(decrypt), .key_put(making && place == g), .key(placed_key), .go(go),
                .in(planes[512*(g-1) +: 512]), .out(planes[512*g +: 512])
            );
        end
    endgenerate
    assign planes[511:0] = entered;

    weld_fifo #(.WIDTH(520), .LOG(1)) out (
        .clk(clk), .rst(rst),
        .in_valid(have[ROUNDS]), .in_ready(room), .in_data({last[ROUNDS], len[7*ROUNDS +: 7], m_turned}),
        .out_valid(m_valid), .out_ready(m_ready), .out_data({m_last, m_len, m_data}),
        .level()
    );

    always @(posedge clk) begin
        if (making) begin
            if (place == 0) whitening <= placed_key;
            next_key <= key_after;
            constant <= {this_constant[6:0], 1'b0} ^ (this_constant[7] ? 8'h1b : 8'd0);
        end
        if (go) begin
            entered <= whitened;
            last <= {last[ROUNDS-1:0], s_last};
            len <= {len[7*ROUNDS-1:0], s_len};
        end

        if (rst) begin
            made <= 0;
            ready <= 0;
            broken <= 0;
            have <= 0;
        end else begin
            if (making) begin
                made <= made + 4'd1;
                ready <= made == 4'd10;
            end
            if (take && s_len[3:0] != 0) broken <= 1;
            if (go) have <= {have[ROUNDS-1:0], take};
        end
    end

    assign status = !done ? 2'd0 : !good ? 2'd2 : !ready ? 2'd0 : broken ? 2'd3 : 2'd1;
    assign d_value = 0;
    assign d_known = 0;

    wire unused = &{1'b0, d_port};
endmodule
