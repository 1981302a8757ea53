// Credits of a FIFO: requests for its data are only issued when there is room for what they bring.
//
// A kernel begins with R credits, each worth C words. A request takes one, and brings 1 to C words, which are taken
// without any hand-shake. A credit comes back as soon as C words of the FIFO are free that no credit and no request
// stands for (INSIDER, section 4.3, has it come back when more than C are free). R x C may not be above the FIFO's
// 2^LOG words. R hides the latency of what is requested, C is the smallest piece that it gives at full speed.
module weld_credit #(
    parameter R = 2,
    parameter C = 4,
    parameter LOG = 3
) (
    input clk,
    input rst,
    // There is a credit; a request is issued, and takes it.
    output can_issue,
    input issue,
    // A word arrives, the last one of its request. Requests are answered in order.
    input put,
    input put_last,
    // A word leaves the FIFO.
    input get,
    output reg [LOG:0] credit,
    // Free words that nothing stands for.
    output reg [LOG:0] spare,
    // Words so far of the request that is being answered.
    output reg [LOG:0] came
);
    localparam [LOG:0] FULL = R;
    localparam [LOG:0] PIECE = C;
    localparam [LOG:0] LEFT = (1 << LOG) - R * C;
    localparam [LOG:0] ONE = 1;

    wire gives = spare >= PIECE && credit < FULL;
    wire [LOG:0] unused_words = put && put_last ? PIECE - came - ONE : 0;

    assign can_issue = credit != 0;

    always @(posedge clk) begin
        if (rst) begin
            credit <= FULL;
            spare <= LEFT;
            came <= 0;
        end else begin
            credit <= credit + (gives ? ONE : 0) - (issue && can_issue ? ONE : 0);
            spare <= spare + (get ? ONE : 0) + unused_words - (gives ? PIECE : 0);
            if (put) came <= put_last ? 0 : came + ONE;
        end
    end
endmodule
