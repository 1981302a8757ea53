// First-word-fall-through FIFO of one clock.
//
// in_ready depends on registers alone: no combinational path leads from one side to the other, so FIFOs may be chained,
// and one of two words already takes and gives a word in every cycle.
module weld_fifo #(
    parameter WIDTH = 8,
    // It holds 2^LOG words; at least 1.
    parameter LOG = 1
) (
    input clk,
    input rst,
    input in_valid,
    output in_ready,
    input [WIDTH-1:0] in_data,
    output out_valid,
    input out_ready,
    output [WIDTH-1:0] out_data,
    // Words in it.
    output [LOG:0] level
);
    localparam [LOG:0] ONE = 1;

    reg [WIDTH-1:0] words [0:(1<<LOG)-1];
    // One bit more than an index has: their difference is the level.
    reg [LOG:0] head, tail;

    wire put = in_valid && in_ready;
    wire get = out_valid && out_ready;

    assign level = tail - head;
    assign in_ready = !level[LOG];
    assign out_valid = level != 0;
    assign out_data = words[head[LOG-1:0]];

    always @(posedge clk) begin
        if (put) words[tail[LOG-1:0]] <= in_data;
        if (rst) begin
            head <= 0;
            tail <= 0;
        end else begin
            if (put) tail <= tail + ONE;
            if (get) head <= head + ONE;
        end
    end

`ifdef FORMAL
    // The word put at any one place of the order is the one that is at the front when that place's turn comes. Which
    // place is left open, so that the proof is for all of them.
    (* anyconst *) wire [LOG:0] place;
    reg [WIDTH-1:0] expected;
    wire [LOG:0] behind = place - head;

    always @(posedge clk) if (put && tail == place) expected <= in_data;

    always @* begin
        if (!rst) begin
            assert (level <= (1 << LOG));
            if (behind < level) assert (words[place[LOG-1:0]] == expected);
            if (out_valid && head == place) assert (out_data == expected);
        end
    end
`endif
endmodule
