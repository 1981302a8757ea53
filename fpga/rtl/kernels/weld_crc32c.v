// crc32c: CRC-32C of the packet, 4 bytes little-endian.
//
// Parameters: none, or the CRC of what came before. One flit a cycle; from the last flit to the result take 10 cycles,
// in which no flit is taken: three stages, then seven that undo the zero bytes that fill the last flit up
// (gen_crc32c.py). Debug port: 0 the CRC so far.
module weld_crc32c (
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
    `include "crc32c_matrix.vh"

    wire done;
    wire [7:0] count;
    wire [31:0] seed;
    wire runs = done && count <= 1;

    weld_params #(.WORDS(1)) params (
        .clk(clk), .rst(rst), .p_valid(p_valid), .p_ready(p_ready), .p_data(p_data), .p_keep(p_keep), .p_last(p_last),
        .done(done), .count(count), .words(seed)
    );

    // Stage 1: the flit, zero past its length. Stage 2: what it adds. Stage 3: the state.
    reg [511:0] flit;
    reg [31:0] added, state;
    reg have_flit, have_added, first, some;
    // From the last flit until its result is taken.
    reg closing;
    // Zero bytes still to undo, of which those of power `power` are next.
    reg [6:0] surplus;
    reg [2:0] power;
    wire undoing = closing && !have_flit && !have_added && power != 3'd7;
    wire ready = closing && !have_flit && !have_added && power == 3'd7;

    wire take = s_valid && s_ready;
    assign s_ready = runs && !closing;

    reg [511:0] masked;
    integer i;
    always @* begin
        for (i = 0; i < 64; i = i + 1)
            masked[8*i +: 8] = i[6:0] < s_len ? s_data[8*i +: 8] : 8'd0;
    end

    reg [31:0] undone;
    always @* begin
        case (power)
            3'd0: undone = crc_before_1(state);
            3'd1: undone = crc_before_2(state);
            3'd2: undone = crc_before_4(state);
            3'd3: undone = crc_before_8(state);
            3'd4: undone = crc_before_16(state);
            3'd5: undone = crc_before_32(state);
            default: undone = crc_before_64(state);
        endcase
    end

    always @(posedge clk) begin
        if (take) begin
            flit <= masked;
            surplus <= 7'd64 - s_len;
        end else if (undoing) surplus <= surplus >> 1;
        if (have_flit) added <= crc_of_data(flit);

        if (rst) begin
            have_flit <= 0;
            have_added <= 0;
            first <= 1;
            some <= 0;
            closing <= 0;
            power <= 0;
        end else begin
            have_flit <= take;
            have_added <= have_flit;
            if (take && s_last) closing <= 1;
            if (undoing) power <= power + 3'd1;
            if (have_added) begin
                first <= 0;
                some <= 1;
            end
            if (m_valid && m_ready) begin
                closing <= 0;
                power <= 0;
                first <= 1;
            end
        end

        if (have_added) state <= crc_after_flit(first ? ~seed : state) ^ added;
        else if (undoing && surplus[0]) state <= undone;
    end

    assign m_valid = ready;
    assign m_data = {480'd0, ~state};
    assign m_len = 7'd4;
    assign m_last = 1;
    assign status = !done ? 2'd0 : runs ? 2'd1 : 2'd2;
    assign d_value = some ? ~state : seed;
    assign d_known = d_port == 0;
endmodule
