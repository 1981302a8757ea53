// aes128: AES with a key of 128 bits, block by block (FIPS 197; ECB).
//
// Parameters: 0 to encrypt or 1 to decrypt, the key. Four blocks, one flit, go through one round a cycle: 10 cycles a
// flit. The round keys are made after the parameters, one a cycle.
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
    `include "aes128_boxes.vh"

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

    function [7:0] box;
        input [7:0] x;
        box = BOX[{x, 3'd0} +: 8];
    endfunction

    function [7:0] inverse_box;
        input [7:0] x;
        inverse_box = INVERSE_BOX[{x, 3'd0} +: 8];
    endfunction

    // Times x in GF(2^8), for the four bytes of a column.
    function [31:0] twice;
        input [31:0] x;
        twice = ({x[30:0], 1'b0} & 32'hfefefefe) ^
            ({{8{x[31]}}, {8{x[23]}}, {8{x[15]}}, {8{x[7]}}} & 32'h1b1b1b1b);
    endfunction

    // 5.1.3: a byte, the one of the next row and the two after that, times 2, 3, 1, 1.
    function [31:0] mix;
        input [31:0] x;
        reg [31:0] y;
        begin
            y = x ^ {x[7:0], x[31:8]};
            mix = twice(y) ^ {x[7:0], x[31:8]} ^ {y[15:0], y[31:16]};
        end
    endfunction

    // 5.3.3, by the identity: its matrix is that of 5.1.3 times that of (5, 0, 4, 0).
    function [31:0] unmix;
        input [31:0] x;
        reg [31:0] y;
        begin
            y = twice(twice(x ^ {x[15:0], x[31:16]}));
            unmix = mix(x ^ y);
        end
    endfunction

    // One round of a block: byte 4c + r is row r of column c.
    function [127:0] forward;
        input [127:0] x;
        input [127:0] round_key;
        input final_round;
        integer c, r;
        reg [127:0] y;
        begin
            for (c = 0; c < 4; c = c + 1)
                for (r = 0; r < 4; r = r + 1)
                    y[8*(4*c+r) +: 8] = box(x[8*(4*((c+r)%4)+r) +: 8]);
            if (!final_round)
                for (c = 0; c < 4; c = c + 1) y[32*c +: 32] = mix(y[32*c +: 32]);
            forward = y ^ round_key;
        end
    endfunction

    function [127:0] backward;
        input [127:0] x;
        input [127:0] round_key;
        input final_round;
        integer c, r;
        reg [127:0] y;
        begin
            for (c = 0; c < 4; c = c + 1)
                for (r = 0; r < 4; r = r + 1)
                    y[8*(4*c+r) +: 8] = inverse_box(x[8*(4*((c+4-r)%4)+r) +: 8]);
            y = y ^ round_key;
            if (!final_round)
                for (c = 0; c < 4; c = c + 1) y[32*c +: 32] = unmix(y[32*c +: 32]);
            backward = y;
        end
    endfunction

    // 5.2: the round key after this one.
    function [127:0] expand;
        input [127:0] x;
        input [7:0] constant;
        reg [31:0] a, b, c, d;
        begin
            a = x[31:0] ^ {box(x[103:96]), box(x[127:120]), box(x[119:112]), box(x[111:104]) ^ constant};
            b = x[63:32] ^ a;
            c = x[95:64] ^ b;
            d = x[127:96] ^ c;
            expand = {d, c, b, a};
        end
    endfunction

    reg [127:0] round_keys [0:15];
    reg [127:0] next_key;
    reg [7:0] constant;
    reg [3:0] made;
    wire making = done && good && !ready;
    wire [127:0] this_key = made == 0 ? key : next_key;

    // The flit that is in work, and the round that is next.
    reg have, last;
    reg [511:0] blocks;
    reg [6:0] len;
    reg [3:0] round;

    wire final_round = round == 4'd10;
    wire room;
    wire put = have && final_round;
    wire advance = have && (!put || room);
    wire take = s_valid && s_ready;
    assign s_ready = runs && (!have || (put && room));

    wire [127:0] whitening = round_keys[decrypt ? 4'd10 : 4'd0];
    wire [127:0] round_key = round_keys[decrypt ? 4'd10 - round : round];

    integer i;
    reg [511:0] worked;
    always @* begin
        for (i = 0; i < 4; i = i + 1)
            if (decrypt) worked[128*i +: 128] = backward(blocks[128*i +: 128], round_key, final_round);
            else worked[128*i +: 128] = forward(blocks[128*i +: 128], round_key, final_round);
    end

    weld_fifo #(.WIDTH(520), .LOG(1)) out (
        .clk(clk), .rst(rst),
        .in_valid(put), .in_ready(room), .in_data({last, len, worked}),
        .out_valid(m_valid), .out_ready(m_ready), .out_data({m_last, m_len, m_data}),
        .level()
    );

    always @(posedge clk) begin
        if (making) begin
            round_keys[made] <= this_key;
            next_key <= expand(this_key, made == 0 ? 8'd1 : constant);
            constant <= made == 0 ? 8'd2 : {constant[6:0], 1'b0} ^ (constant[7] ? 8'h1b : 8'd0);
        end
        if (take) begin
            blocks <= s_data ^ {4{whitening}};
            len <= s_len;
            last <= s_last;
            round <= 4'd1;
        end else if (advance) begin
            blocks <= worked;
            round <= round + 4'd1;
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
            if (take) have <= 1;
            else if (put && room) have <= 0;
        end
    end

    assign status = !done ? 2'd0 : !good ? 2'd2 : !ready ? 2'd0 : broken ? 2'd3 : 2'd1;
    assign d_value = 0;
    assign d_known = 0;

    wire unused = &{1'b0, d_port};
endmodule
