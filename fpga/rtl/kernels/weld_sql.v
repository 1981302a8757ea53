// sql: of records of 32 bytes those whose last two bytes, ASCII digits, are a number in a range.
//
// Parameters: lowest and highest number. Two records, one flit, a cycle; one cycle more at the end of a packet whose
// last flit makes three records wait. Debug port: 0 records that came, 1 records kept, of the packet.
module weld_sql (
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
    wire [31:0] lo, hi;
    wire runs = done && count == 8'd2 && lo <= hi && hi <= 32'd9999;

    weld_params #(.WORDS(2)) params (
        .clk(clk), .rst(rst), .p_valid(p_valid), .p_ready(p_ready), .p_data(p_data), .p_keep(p_keep), .p_last(p_last),
        .done(done), .count(count), .words({hi, lo})
    );

    // Whether the year at the end of a record is in the range: tens in the lower byte.
    function in_range;
        input [15:0] year;
        input [31:0] from;
        input [31:0] to;
        reg [7:0] tens, ones;
        reg [11:0] number;
        begin
            tens = year[7:0] - 8'h30;
            ones = year[15:8] - 8'h30;
            // Ten times is eight times and twice: no multiplier.
            number = {1'b0, tens, 3'd0} + {3'd0, tens, 1'b0} + {4'd0, ones};
            in_range = tens < 8'd10 && ones < 8'd10 && from <= {20'd0, number} &&
                {20'd0, number} <= to;
        end
    endfunction

    // Stage 1: the flit, which of its records are whole, which are kept.
    reg have, last;
    reg [511:0] flit;
    reg [1:0] whole, keep;
    // Stage 2: a kept record that waits for another one, and one that is put out after a full flit, as the packet's
    // last.
    reg half, tail;
    reg [255:0] held;
    reg [31:0] seen, kept;
    reg first;

    wire room;
    // Records at hand, and what goes out.
    wire [1:0] number = {1'b0, half} + {1'b0, keep[0]} + {1'b0, keep[1]};
    wire [255:0] low = half ? held : keep[0] ? flit[255:0] : flit[511:256];
    wire [255:0] high = half && keep[0] ? flit[255:0] : flit[511:256];
    wire three = number == 2'd3;
    wire emit = tail || (have && (number[1] || last));
    wire go = !emit || room;
    wire advance = have && !tail && go;
    wire take = s_valid && s_ready;

    assign s_ready = runs && (!have || advance);

    wire [511:0] out_data = {high, tail ? held : low};
    wire [6:0] out_len = tail || !number[1] ? {1'b0, tail || number[0], 5'd0} : 7'd64;
    wire out_last = tail || (last && !three);

    weld_fifo #(.WIDTH(520), .LOG(1)) out (
        .clk(clk), .rst(rst),
        .in_valid(emit), .in_ready(room), .in_data({out_last, out_len, out_data}),
        .out_valid(m_valid), .out_ready(m_ready), .out_data({m_last, m_len, m_data}),
        .level()
    );

    wire [1:0] s_whole = {s_len == 7'd64, s_len[6:5] != 2'd0};

    always @(posedge clk) begin
        if (take) begin
            flit <= s_data;
            last <= s_last;
            whole <= s_whole;
            keep <= s_whole & {in_range(s_data[511:496], lo, hi), in_range(s_data[255:240], lo, hi)};
        end
        if (advance) held <= three ? flit[511:256] : number == 2'd1 ? low : held;

        if (rst) begin
            have <= 0;
            half <= 0;
            tail <= 0;
            first <= 1;
            seen <= 0;
            kept <= 0;
        end else begin
            if (take) have <= 1;
            else if (advance) have <= 0;
            if (advance) begin
                half <= number[0] && !last;
                tail <= three && last;
                first <= last;
                seen <= (first ? 32'd0 : seen) + {31'd0, whole[0]} + {31'd0, whole[1]};
                kept <= (first ? 32'd0 : kept) + {31'd0, keep[0]} + {31'd0, keep[1]};
            end else if (tail && go) tail <= 0;
        end
    end

    assign status = !done ? 2'd0 : runs ? 2'd1 : 2'd2;
    assign d_value = d_port[0] ? kept : seen;
    assign d_known = d_port < 32'd2;
endmodule
