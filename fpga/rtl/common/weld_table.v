// A table with one port to fill it and one to look up. Where many look-ups are made in a cycle, each has a table of its
// own: that is what many ports of one memory come to in a chip, and synthesis does not have to find it out.
module weld_table #(
    parameter WIDTH = 8,
    // It has 2^LOG words.
    parameter LOG = 4
) (
    input clk,
    input put,
    input [LOG-1:0] put_index,
    input [WIDTH-1:0] put_data,
    input [LOG-1:0] index,
    output [WIDTH-1:0] data
);
    // 128 times in one kernel, this would be most of its waveform.
    // verilator tracing_off
    reg [WIDTH-1:0] words [0:(1<<LOG)-1];
    // verilator tracing_on

    assign data = words[index];

    always @(posedge clk) if (put) words[put_index] <= put_data;
endmodule
