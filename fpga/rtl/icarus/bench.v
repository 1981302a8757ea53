// Runs the vectors of a kernel through it, with stalls on both sides, and compares every flit. TOP is the kernel's
// module.
//
// Vectors: words of 520 bits {last, length, data} in hexadecimal, as check.py writes them.
`timescale 1ns / 1ps
module bench;
    parameter FLITS_IN = 1;
    parameter FLITS_OUT = 1;

    reg clk = 0;
    reg rst = 1;
    reg p_valid = 0;
    wire p_ready, s_ready, m_valid, m_last, d_known;
    reg [519:0] feed [0:FLITS_IN-1];
    reg [519:0] want [0:FLITS_OUT-1];
    reg s_valid = 0;
    reg m_ready = 0;
    wire [511:0] m_data;
    wire [6:0] m_len;
    wire [1:0] status;
    wire [31:0] d_value;
    integer at = 0;
    integer got = 0;
    integer wrong = 0;
    integer cycle = 0;
    integer seed = 1;
    integer i;
    reg same;

    `TOP dut (
        .clk(clk), .rst(rst),
        .p_valid(p_valid), .p_ready(p_ready), .p_data(32'd0), .p_keep(1'b0), .p_last(1'b1),
        .s_valid(s_valid), .s_ready(s_ready),
        .s_data(feed[at][511:0]), .s_len(feed[at][518:512]), .s_last(feed[at][519]),
        .m_valid(m_valid), .m_ready(m_ready), .m_data(m_data), .m_len(m_len), .m_last(m_last),
        .status(status), .d_port(32'd0), .d_value(d_value), .d_known(d_known)
    );

    initial begin
        $readmemh("feed.hex", feed);
        $readmemh("want.hex", want);
    end

    always #1 clk = !clk;

    // All that goes in changes at the falling edge; hand-shakes are looked at just before the rising one.
    always @(negedge clk) begin
        rst <= cycle < 3;
        p_valid <= cycle > 4 && status == 2'd0;
        if (at < FLITS_IN && status == 2'd1 && !s_valid) s_valid <= $random(seed) % 4 != 0;
        m_ready <= $random(seed) % 3 != 0;
        cycle <= cycle + 1;
    end

    always @(posedge clk) begin
        if (s_valid && s_ready) begin
            at <= at + 1;
            s_valid <= 0;
        end
        if (m_valid && m_ready) begin
            same = m_last === want[got][519] && m_len === want[got][518:512];
            for (i = 0; i < 64; i = i + 1)
                if (i < m_len && m_data[8*i +: 8] !== want[got][8*i +: 8]) same = 0;
            if (!same) begin
                wrong = wrong + 1;
                $display("flit %0d: %b %0d %h, wanted %b %0d %h", got, m_last, m_len, m_data,
                    want[got][519], want[got][518:512], want[got][511:0]);
            end
            got <= got + 1;
            if (got == FLITS_OUT - 1) begin
                $display("%0d flits, %0d wrong", FLITS_OUT, wrong);
                $finish;
            end
        end
        if (cycle > 40 * (FLITS_IN + FLITS_OUT) + 1000) begin
            $display("%0d of %0d flits after %0d cycles", got, FLITS_OUT, cycle);
            $finish;
        end
    end
endmodule
