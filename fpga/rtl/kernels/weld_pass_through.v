// pass-through: the bytes as they come. Parameters: none. One flit a cycle.
module weld_pass_through (
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
    wire done;
    wire [7:0] count;
    wire runs = done && count == 0;
    wire room;

    weld_params #(.WORDS(1)) params (
        .clk(clk), .rst(rst), .p_valid(p_valid), .p_ready(p_ready), .p_data(p_data), .p_keep(p_keep), .p_last(p_last),
        .done(done), .count(count), .words()
    );

    weld_fifo #(.WIDTH(520), .LOG(1)) out (
        .clk(clk), .rst(rst),
        .in_valid(s_valid && runs), .in_ready(room), .in_data({s_last, s_len, s_data}),
        .out_valid(m_valid), .out_ready(m_ready), .out_data({m_last, m_len, m_data}),
        .level()
    );

    assign s_ready = room && runs;
    assign status = !done ? 2'd0 : runs ? 2'd1 : 2'd2;
    assign d_value = 0;
    assign d_known = 0;

    wire unused = &{1'b0, d_port};
endmodule
