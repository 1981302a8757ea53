// The input side of a slot: a FIFO whose words are requested by credit, so that it never refuses one.
module weld_ingress #(
    parameter WIDTH = 520,
    parameter R = 2,
    parameter C = 4,
    parameter LOG = 3
) (
    input clk,
    input rst,
    output can_issue,
    input issue,
    // An answer to a request. There is always room for it.
    input in_valid,
    input in_last,
    input [WIDTH-1:0] in_data,
    output out_valid,
    input out_ready,
    output [WIDTH-1:0] out_data,
    // For tests: a word was refused; credits, words that nothing stands for, words of the request that is being
    // answered, and words held.
    output refused,
    output [LOG:0] credit,
    output [LOG:0] spare,
    output [LOG:0] came,
    output [LOG:0] level
);
    wire in_ready;
    assign refused = in_valid && !in_ready;

    weld_fifo #(.WIDTH(WIDTH), .LOG(LOG)) fifo (
        .clk(clk), .rst(rst),
        .in_valid(in_valid), .in_ready(in_ready), .in_data(in_data),
        .out_valid(out_valid), .out_ready(out_ready), .out_data(out_data),
        .level(level)
    );

    weld_credit #(.R(R), .C(C), .LOG(LOG)) credits (
        .clk(clk), .rst(rst), .can_issue(can_issue), .issue(issue),
        .put(in_valid), .put_last(in_last), .get(out_valid && out_ready),
        .credit(credit), .spare(spare), .came(came)
    );
endmodule
