// The parameter port: 32-bit words, the last one marked. An empty list is one beat without a word (p_keep 0).
module weld_params #(
    // Words that are kept; further ones are counted as one more.
    parameter WORDS = 1
) (
    input clk,
    input rst,
    input p_valid,
    output p_ready,
    input [31:0] p_data,
    input p_keep,
    input p_last,
    // The list is complete; from then on nothing changes until rst.
    output reg done,
    // How many words came: 0 to WORDS, and WORDS + 1 for too many.
    output reg [7:0] count,
    // Word i in bits 32i and up; those that did not come are 0.
    output reg [32*WORDS-1:0] words
);
    localparam [7:0] FULL = WORDS;

    integer i;

    assign p_ready = !done;

    always @(posedge clk) begin
        if (rst) begin
            done <= 0;
            count <= 0;
            words <= 0;
        end else if (p_valid && p_ready) begin
            done <= p_last;
            if (p_keep) begin
                if (count <= FULL) count <= count + 8'd1;
                for (i = 0; i < WORDS; i = i + 1)
                    if (count == i[7:0]) words[32*i +: 32] <= p_data;
            end
        end
    end
endmodule
