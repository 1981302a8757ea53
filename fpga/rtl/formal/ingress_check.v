// What holds for FIFO and credits in every reachable state, for any order of requests, answers and stalls.
//
// The environment answers requests in order, each with 1 to C words. Proven by induction: no word is refused; words
// come out in order and unchanged (weld_fifo.v); free, promised and held words are all there are; credits stay within
// R; and when all is drained, all credits are there or come back.
module ingress_check #(
    parameter R = 2,
    parameter C = 4,
    parameter LOG = 3
) (
    input clk,
    input rst,
    input issue,
    input in_valid,
    input in_last,
    input [1:0] in_data,
    input out_ready
);
    localparam DEPTH = 1 << LOG;

    wire can_issue, out_valid, refused;
    wire [1:0] out_data;
    wire [LOG:0] credit, spare, came, level;

    weld_ingress #(.WIDTH(2), .R(R), .C(C), .LOG(LOG)) dut (
        .clk(clk), .rst(rst), .can_issue(can_issue), .issue(issue),
        .in_valid(in_valid), .in_last(in_last), .in_data(in_data),
        .out_valid(out_valid), .out_ready(out_ready), .out_data(out_data),
        .refused(refused), .credit(credit), .spare(spare), .came(came), .level(level)
    );

    // Requests without their last word, and words that the oldest of them has brought.
    reg [LOG+1:0] requests;
    reg [LOG:0] brought;
    wire issued = issue && can_issue;
    wire ended = in_valid && in_last;

    initial assume (rst);

    always @* begin
        if (in_valid) assume (requests != 0);
        if (in_valid && brought == C - 1) assume (in_last);
    end

    always @(posedge clk) begin
        if (rst) begin
            requests <= 0;
            brought <= 0;
        end else begin
            requests <= requests + issued - ended;
            if (in_valid) brought <= in_last ? 0 : brought + 1;
        end
    end

    // What is promised: C words for each credit and each request, less those that have come.
    wire [31:0] promised = (credit + requests) * C - brought;

    always @* begin
        if (!rst) begin
            assert (!refused);
            assert (credit <= R);
            assert (promised + spare + level == DEPTH);
            assert (out_valid == (level != 0));
            if (requests == 0) assert (brought == 0);
            assert (brought < C);
            assert (brought == came);
            if (requests == 0 && level == 0 && spare < C && R * C == DEPTH) assert (credit == R);
        end
    end
endmodule
