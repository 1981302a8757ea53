// Packs units of UNIT bytes, at most one a cycle, into full flits.
//
// A beat may be without a unit; one that is the last ends the packet. Each beat gives one flit at most, so one beat a
// cycle is taken for as long as flits are.
module weld_pack #(
    // Bytes; 64 is a multiple of it.
    parameter UNIT = 8
) (
    input clk,
    input rst,
    input u_valid,
    output u_ready,
    input u_keep,
    input [8*UNIT-1:0] u_data,
    input u_last,
    output m_valid,
    input m_ready,
    output [511:0] m_data,
    output [6:0] m_len,
    output m_last
);
    localparam UNITS = 64 / UNIT;
    localparam [6:0] BYTES = UNIT;

    // What is held, and how many bytes of it count; those past them are left over from earlier flits.
    reg [511:0] held;
    reg [6:0] fill;

    reg [511:0] joined;
    wire [6:0] joined_fill = u_keep ? fill + BYTES : fill;
    wire full = joined_fill == 7'd64;
    integer i;

    always @* begin
        joined = held;
        for (i = 0; i < UNITS; i = i + 1)
            if (fill == i[6:0] * BYTES) joined[8*UNIT*i +: 8*UNIT] = u_data;
    end

    wire emit = u_valid && (full || u_last);

    always @(posedge clk) begin
        if (rst) fill <= 0;
        else if (u_valid && u_ready) begin
            if (u_keep) held <= joined;
            fill <= emit ? 7'd0 : joined_fill;
        end
    end

    weld_fifo #(.WIDTH(520), .LOG(1)) out (
        .clk(clk), .rst(rst),
        .in_valid(emit), .in_ready(u_ready), .in_data({u_last, joined_fill, joined}),
        .out_valid(m_valid), .out_ready(m_ready), .out_data({m_last, m_len, m_data}),
        .level()
    );
endmodule
