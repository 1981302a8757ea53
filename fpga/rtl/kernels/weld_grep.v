// grep: in which rows a needle of 1 to 32 bytes occurs, and where first.
//
// Parameters: the needle's length, its bytes. The algorithm is Shift-And (Baeza-Yates and Gonnet, A new approach to
// text searching, 1992), unrolled over the 64 bytes of a flit. Bit k of the state says that the last k bytes of the
// needle's place are as they should be; the needle is shifted up, so that bit 31 is a match whatever its length. The
// table of which needle bytes a text byte equals is two tables of 16 words, one for each half of the byte.
//
// One flit a cycle; one cycle more for each further row of a flit with a match.
// Debug port: 0 rows of the packet, 1 rows with a match.
module weld_grep (
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
    wire [31:0] len;
    wire [255:0] needle;

    weld_params #(.WORDS(9)) params (
        .clk(clk), .rst(rst), .p_valid(p_valid), .p_ready(p_ready), .p_data(p_data), .p_keep(p_keep), .p_last(p_last),
        .done(done), .count(count), .words({needle, len})
    );

    integer i;

    // No newline among the first bytes, nothing after them, as many words as they take.
    reg good;
    always @* begin
        good = len != 0 && len <= 32'd32 && {24'd0, count} == 32'd1 + ((len + 32'd3) >> 2);
        for (i = 0; i < 32; i = i + 1) begin
            if (i < len && needle[8*i +: 8] == 8'h0a) good = 0;
            if (i >= len && needle[8*i +: 8] != 8'h00) good = 0;
        end
    end

    // The tables are filled: first the needle is shifted up, byte by byte, then words 0 to 15 are written.
    reg [255:0] shifted;
    reg [31:0] care;
    reg [5:0] shifts;
    reg loaded, ready;
    reg [3:0] index;
    reg [31:0] high_word, low_word;
    wire shifting = loaded && !ready && shifts != 0;
    wire filling = loaded && !ready && shifts == 0;
    wire runs = ready;

    always @* begin
        for (i = 0; i < 32; i = i + 1) begin
            low_word[i] = !care[i] || shifted[8*i +: 4] == index;
            high_word[i] = !care[i] || shifted[8*i+4 +: 4] == index;
        end
    end

    always @(posedge clk) begin
        if (!loaded) begin
            shifted <= needle;
            care <= 32'hffffffff;
            shifts <= 6'd32 - len[5:0];
        end else if (shifting) begin
            shifted <= shifted << 8;
            care <= care << 1;
            shifts <= shifts - 6'd1;
        end
        if (rst) begin
            loaded <= 0;
            ready <= 0;
            index <= 0;
        end else begin
            loaded <= done && good;
            if (filling) begin
                index <= index + 4'd1;
                ready <= index == 4'd15;
            end
        end
    end

    wire [2047:0] high, low;
    genvar g;
    generate
        for (g = 0; g < 64; g = g + 1) begin : look_up
            weld_table #(.WIDTH(32), .LOG(4)) high_of (
                .clk(clk), .put(filling), .put_index(index), .put_data(high_word),
                .index(s_data[8*g+4 +: 4]), .data(high[32*g +: 32])
            );
            weld_table #(.WIDTH(32), .LOG(4)) low_of (
                .clk(clk), .put(filling), .put_index(index), .put_data(low_word),
                .index(s_data[8*g +: 4]), .data(low[32*g +: 32])
            );
        end
    endgenerate

    // Stage 1: for each byte which needle bytes it equals; where newlines are.
    reg have1, last1;
    reg [2047:0] equal;
    reg [63:0] lines1;
    reg [6:0] len1;
    // Stage 2: the state, and where matches end.
    reg have2, last2;
    reg [63:0] ends, lines2;
    reg [6:0] len2;
    reg [31:0] state;
    // Stage 3: rows. `column` is what the flit's byte 0 has, `matched` that its row needs no more.
    reg [31:0] row, column, rows, matching;
    reg matched, first;

    wire go1, go2, go3;
    wire take = s_valid && s_ready;
    assign s_ready = runs && go1;
    assign go1 = !have1 || go2;
    assign go2 = !have2 || go3;

    reg [31:0] next;
    reg [63:0] found;
    always @* begin
        next = state;
        for (i = 0; i < 64; i = i + 1) begin
            next = {next[30:0], 1'b1} & equal[32*i +: 32];
            found[i] = next[31];
        end
    end

    // Bits 0 to the lowest one that is set; all of them if none is.
    function [63:0] through_first;
        input [63:0] x;
        through_first = x ^ (x - 64'd1);
    endfunction

    function [6:0] ones;
        input [63:0] x;
        integer k;
        begin
            ones = 0;
            for (k = 0; k < 64; k = k + 1) ones = ones + {6'd0, x[k]};
        end
    endfunction

    // The position after the highest bit that is set.
    function [6:0] after_last;
        input [63:0] x;
        integer k;
        begin
            after_last = 0;
            for (k = 0; k < 64; k = k + 1) if (x[k]) after_last = k[6:0] + 7'd1;
        end
    endfunction

    wire [63:0] left = matched ? ends & ~through_first(lines2) : ends;
    wire hit = left != 0;
    wire [63:0] to_hit = through_first(left);
    wire [63:0] lines_before = hit ? lines2 & to_hit : lines2;
    wire [63:0] lines_after = hit ? lines2 & ~to_hit : 64'd0;
    wire [63:0] left_after = hit ? left & ~through_first(lines_after) : 64'd0;
    wire [6:0] rows_before = ones(lines_before);
    wire [6:0] start_before = after_last(lines_before);
    // Column of byte 0, seen from the row that the hit is in; and where the last row of the flit begins.
    wire [31:0] column_here = lines_before != 0 ? 32'd0 - {25'd0, start_before} : column;
    wire [31:0] hit_column = column_here + {25'd0, ones(to_hit)} - len;
    wire [31:0] hit_row = row + {25'd0, rows_before};
    wire finishes = left_after == 0;
    wire [6:0] start_all = after_last(lines2);
    wire [31:0] column_all = lines2 != 0 ? 32'd0 - {25'd0, start_all} : column;
    wire [31:0] row_all = hit_row + {25'd0, ones(lines_after)};
    wire [31:0] end_column = column_all + {25'd0, len2};

    wire put = have2 && (hit || last2);
    wire room;
    assign go3 = finishes && (!put || room);
    wire advance = have2 && (!put || room);

    weld_pack #(.UNIT(8)) pack (
        .clk(clk), .rst(rst),
        .u_valid(put), .u_ready(room), .u_keep(hit), .u_data({hit_column, hit_row}), .u_last(last2 && finishes),
        .m_valid(m_valid), .m_ready(m_ready), .m_data(m_data), .m_len(m_len), .m_last(m_last)
    );

    always @(posedge clk) begin
        if (take) begin
            last1 <= s_last;
            len1 <= s_len;
            for (i = 0; i < 64; i = i + 1) begin
                equal[32*i +: 32] <= i[6:0] < s_len ? high[32*i +: 32] & low[32*i +: 32] : ~care;
                lines1[i] <= i[6:0] < s_len && s_data[8*i +: 8] == 8'h0a;
            end
        end
        if (have1 && go2) begin
            last2 <= last1;
            len2 <= len1;
            ends <= found;
            lines2 <= lines1;
        end else if (advance && !finishes) begin
            ends <= left_after;
            lines2 <= lines_after;
        end
        if (!ready || (have1 && go2 && last1)) state <= ~care;
        else if (have1 && go2) state <= next;

        if (rst) begin
            have1 <= 0;
            have2 <= 0;
            row <= 0;
            column <= 0;
            rows <= 0;
            matching <= 0;
            matched <= 0;
            first <= 1;
        end else begin
            if (go1) have1 <= take;
            if (go2) have2 <= have1;
            if (advance) begin
                first <= last2 && finishes;
                matching <= (first ? 32'd0 : matching) + {31'd0, hit};
                if (!finishes) begin
                    row <= hit_row;
                    matched <= 1;
                end else if (last2) begin
                    row <= 0;
                    column <= 0;
                    matched <= 0;
                    rows <= row_all + {31'd0, end_column != 0};
                end else begin
                    row <= row_all;
                    column <= column_all + 32'd64;
                    matched <= hit ? lines_after == 0 : matched && lines2 == 0;
                    rows <= row_all;
                end
            end
        end
    end

    assign status = !done ? 2'd0 : !good ? 2'd2 : runs ? 2'd1 : 2'd0;
    assign d_value = d_port[0] ? matching : rows;
    assign d_known = d_port < 32'd2;
endmodule
