// statistics: greatest, least and sum of each row of 32-bit numbers.
//
// Parameter: numbers in a row. One flit a cycle where rows have 16 numbers and begin with a flit; one cycle more for
// each further row that a flit has a part of. Debug port: 0 rows of the packet, 1 bytes at its end that make no number.
module weld_statistics (
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
    wire [31:0] per_row;
    wire runs = done && count == 8'd1 && per_row != 0;

    weld_params #(.WORDS(1)) params (
        .clk(clk), .rst(rst), .p_valid(p_valid), .p_ready(p_ready), .p_data(p_data), .p_keep(p_keep), .p_last(p_last),
        .done(done), .count(count), .words(per_row)
    );

    // Stage 1: the flit, and what of it is still to do: numbers `from` to `to`. A row wants `per_row - had` more.
    reg have, last;
    reg [511:0] flit;
    reg [4:0] from, to;
    reg [1:0] odd;
    reg [31:0] had;
    // Stage 2: the numbers of one row; others are marked as not there. Stage 3: what they come to, in four parts. Stage
    // 4: the whole. Stage 5: what the row has come to so far.
    reg have2, any2, end2, last2;
    reg [511:0] lanes;
    reg [15:0] there;
    reg have3, any3, end3, last3;
    reg [127:0] max3, min3;
    reg [135:0] sum3;
    reg have4, any4, end4, last4;
    reg [31:0] max4, min4;
    reg [35:0] sum4;
    reg more;
    reg [31:0] max5, min5;
    reg [63:0] sum5;
    reg [31:0] rows, dropped;
    reg first;

    wire go;
    wire [4:0] here = to - from;
    wire [31:0] wants = per_row - had;
    wire ends = wants <= {27'd0, here};
    wire [4:0] stop = ends ? from + wants[4:0] : to;
    wire finishes = stop == to;
    wire advance = have && go;
    wire take = s_valid && s_ready;
    wire closes = finishes && last;

    assign s_ready = runs && (!have || (advance && finishes));

    // Greatest and least of four, as a tree.
    function [31:0] greater;
        input [31:0] a;
        input [31:0] b;
        greater = a > b ? a : b;
    endfunction

    function [31:0] less;
        input [31:0] a;
        input [31:0] b;
        less = a < b ? a : b;
    endfunction

    function [31:0] greatest;
        input [127:0] x;
        greatest = greater(greater(x[31:0], x[63:32]), greater(x[95:64], x[127:96]));
    endfunction

    function [31:0] least;
        input [127:0] x;
        least = less(less(x[31:0], x[63:32]), less(x[95:64], x[127:96]));
    endfunction

    integer i;
    reg [511:0] for_max, for_min;
    reg [127:0] max_next, min_next;
    reg [135:0] sum_next;
    always @* begin
        for (i = 0; i < 16; i = i + 1) begin
            for_max[32*i +: 32] = there[i] ? lanes[32*i +: 32] : 32'd0;
            for_min[32*i +: 32] = there[i] ? lanes[32*i +: 32] : 32'hffffffff;
        end
        for (i = 0; i < 4; i = i + 1) begin
            max_next[32*i +: 32] = greatest(for_max[128*i +: 128]);
            min_next[32*i +: 32] = least(for_min[128*i +: 128]);
            sum_next[34*i +: 34] = ({2'd0, for_max[128*i +: 32]} + {2'd0, for_max[128*i+32 +: 32]}) +
                ({2'd0, for_max[128*i+64 +: 32]} + {2'd0, for_max[128*i+96 +: 32]});
        end
    end

    wire [31:0] max_all = more ? greater(max4, max5) : max4;
    wire [31:0] min_all = more ? less(min4, min5) : min4;
    wire [63:0] sum_all = (more ? sum5 : 64'd0) + {28'd0, sum4};
    wire put = have4 && (end4 || last4);
    wire row_out = end4 || (last4 && (more || any4));
    wire room;
    assign go = !put || room;

    weld_pack #(.UNIT(16)) pack (
        .clk(clk), .rst(rst),
        .u_valid(put), .u_ready(room), .u_keep(row_out), .u_data({sum_all, min_all, max_all}), .u_last(last4),
        .m_valid(m_valid), .m_ready(m_ready), .m_data(m_data), .m_len(m_len), .m_last(m_last)
    );

    always @(posedge clk) begin
        if (take) begin
            flit <= s_data;
            last <= s_last;
            odd <= s_len[1:0];
            to <= s_len[6:2];
            from <= 0;
        end else if (advance) from <= stop;
        if (advance) begin
            lanes <= flit;
            for (i = 0; i < 16; i = i + 1) there[i] <= i[4:0] >= from && i[4:0] < stop;
            any2 <= from != stop;
            end2 <= ends;
            last2 <= closes;
        end
        if (go && have2) begin
            max3 <= max_next;
            min3 <= min_next;
            sum3 <= sum_next;
            any3 <= any2;
            end3 <= end2;
            last3 <= last2;
        end
        if (go && have3) begin
            max4 <= greatest(max3);
            min4 <= least(min3);
            sum4 <= ({2'd0, sum3[33:0]} + {2'd0, sum3[67:34]}) + ({2'd0, sum3[101:68]} + {2'd0, sum3[135:102]});
            any4 <= any3;
            end4 <= end3;
            last4 <= last3;
        end
        if (go && have4) begin
            max5 <= max_all;
            min5 <= min_all;
            sum5 <= sum_all;
        end

        if (rst) begin
            have <= 0;
            have2 <= 0;
            have3 <= 0;
            have4 <= 0;
            had <= 0;
            more <= 0;
            first <= 1;
            rows <= 0;
            dropped <= 0;
        end else begin
            if (take) have <= 1;
            else if (advance && finishes) have <= 0;
            if (advance) had <= ends || closes ? 32'd0 : had + {27'd0, here};
            if (advance && closes) dropped <= {30'd0, odd};
            if (go) begin
                have2 <= have;
                have3 <= have2;
                have4 <= have3;
                if (have4) begin
                    more <= !put && (more || any4);
                    first <= last4;
                    rows <= (first ? 32'd0 : rows) + {31'd0, row_out};
                end
            end
        end
    end

    assign status = !done ? 2'd0 : runs ? 2'd1 : 2'd2;
    assign d_value = d_port[0] ? dropped : rows;
    assign d_known = d_port < 32'd2;
endmodule
