// integrate: records of 64 bytes that are like a query.
//
// Parameters: q, p, 32 bytes of query. Kept are records of which one of the first p bytes is among the query's first p,
// and that have more than 32 - q equal pairs among their first 32 bytes and the query's. A pair of bytes is never
// compared: for each value of a byte a table says how often the query has it, and whether its first p bytes do; 32
// look-ups, added up, make both conditions. The table is filled after the parameters, one value a cycle.
//
// One flit, which is a record, a cycle.
// Debug port: 0 records that came, 1 those that fulfil the first condition, 2 those kept, of the packet.
module weld_integrate (
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
    wire [31:0] q, p;
    wire [255:0] query;
    wire good = count == 8'd10 && q <= 32'd32 && p != 0 && p <= 32'd32;
    reg ready;
    wire runs = ready;

    weld_params #(.WORDS(10)) params (
        .clk(clk), .rst(rst), .p_valid(p_valid), .p_ready(p_ready), .p_data(p_data), .p_keep(p_keep), .p_last(p_last),
        .done(done), .count(count), .words({query, p, q})
    );

    integer i;

    // How often the query has the value, and whether its prefix has, in the highest bit.
    reg [7:0] value;
    reg [5:0] times;
    reg among;
    always @* begin
        times = 0;
        among = 0;
        for (i = 0; i < 32; i = i + 1)
            if (query[8*i +: 8] == value) begin
                times = times + 6'd1;
                if (i < p) among = 1;
            end
    end

    wire filling = done && good && !ready;
    wire [223:0] found;
    genvar g;
    generate
        for (g = 0; g < 32; g = g + 1) begin : look_up
            weld_table #(.WIDTH(7), .LOG(8)) times_of (
                .clk(clk), .put(filling), .put_index(value), .put_data({among, times}),
                .index(s_data[8*g +: 8]), .data(found[7*g +: 7])
            );
        end
    endgenerate

    always @(posedge clk) begin
        if (rst) begin
            value <= 0;
            ready <= 0;
        end else if (filling) begin
            value <= value + 8'd1;
            ready <= value == 8'hff;
        end
    end

    // Stage 1: the record, and what the table says of each byte. Stage 2: the sums of eight each. Stage 3: kept or not.
    reg have1, last1, whole1;
    reg [511:0] record1;
    reg [223:0] looked;
    reg have2, last2, whole2, among2;
    reg [511:0] record2;
    reg [35:0] sums;
    reg [31:0] seen, similar, kept;
    reg first;

    wire go;
    wire take = s_valid && s_ready;
    assign s_ready = runs && go;

    reg among_any;
    reg [35:0] sums_next;
    always @* begin
        among_any = 0;
        sums_next = 0;
        for (i = 0; i < 32; i = i + 1) begin
            if (i < p) among_any = among_any | looked[7*i+6];
            sums_next[9*(i/8) +: 9] = sums_next[9*(i/8) +: 9] + {3'd0, looked[7*i +: 6]};
        end
    end

    wire [10:0] pairs = {2'd0, sums[8:0]} + {2'd0, sums[17:9]} + {2'd0, sums[26:18]} + {2'd0, sums[35:27]};
    wire keep = whole2 && among2 && {21'd0, pairs} + q > 32'd32;
    wire put = have2 && (keep || last2);
    wire room;
    assign go = !put || room;

    weld_fifo #(.WIDTH(520), .LOG(1)) out (
        .clk(clk), .rst(rst),
        .in_valid(put), .in_ready(room), .in_data({last2, keep, 6'd0, record2}),
        .out_valid(m_valid), .out_ready(m_ready), .out_data({m_last, m_len, m_data}),
        .level()
    );

    always @(posedge clk) begin
        if (take) begin
            record1 <= s_data;
            last1 <= s_last;
            whole1 <= s_len == 7'd64;
            looked <= found;
        end
        if (go && have1) begin
            record2 <= record1;
            last2 <= last1;
            whole2 <= whole1;
            among2 <= among_any;
            sums <= sums_next;
        end

        if (rst) begin
            have1 <= 0;
            have2 <= 0;
            seen <= 0;
            similar <= 0;
            kept <= 0;
            first <= 1;
        end else if (go) begin
            have1 <= take;
            have2 <= have1;
            if (have2) begin
                first <= last2;
                seen <= (first ? 32'd0 : seen) + {31'd0, whole2};
                similar <= (first ? 32'd0 : similar) + {31'd0, whole2 && among2};
                kept <= (first ? 32'd0 : kept) + {31'd0, keep};
            end
        end
    end

    assign status = !done ? 2'd0 : !good ? 2'd2 : runs ? 2'd1 : 2'd0;
    assign d_value = d_port[1] ? kept : d_port[0] ? similar : seen;
    assign d_known = d_port < 32'd3;
endmodule
