// rle: pairs of bytes, count and value, expanded.
//
// Parameters: none. Up to 8 pairs, or what fills a flit of output, a cycle: as many cycles as flits go out where runs are
// 8 bytes long or longer, and 4 for each flit that comes in where they are so short that nothing is put out before.
// Debug port: 0 pairs that came, of the packet.
module weld_rle (
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
    localparam PAIRS = 8;

    wire done;
    wire [7:0] count;
    reg broken;
    wire runs = done && count == 0 && !broken;

    weld_params #(.WORDS(1)) params (
        .clk(clk), .rst(rst), .p_valid(p_valid), .p_ready(p_ready), .p_data(p_data), .p_keep(p_keep), .p_last(p_last),
        .done(done), .count(count), .words()
    );

    // Stage 1: pairs that are still to be expanded, the next one lowest, and behind them a flit of those that follow: a
    // cycle takes pairs of both, so that the end of a flit costs none. `fill`: how many bytes of output stand before them
    // in the flit that is being filled.
    reg have, last, next_have, next_last;
    reg [511:0] pairs, next_pairs;
    reg [5:0] waiting, next_waiting;
    reg [5:0] fill;
    reg [31:0] seen;
    reg first;
    // Stage 2: where in that flit the run of each of eight pairs ends, at most 64, and their values.
    reg have2, last2, emit2;
    reg [6:0] begin2, len2;
    reg [7*PAIRS-1:0] ends2;
    reg [8*PAIRS-1:0] values2;
    reg [511:0] held;

    wire room, go;
    wire take = s_valid && s_ready;
    // Pairs of another packet are not looked at before this one has ended.
    wire both = next_have && !last;
    wire [6:0] there = {1'b0, waiting} + (both ? {1'b0, next_waiting} : 7'd0);
    // The first 8 of them.
    wire [127:0] behind = waiting < 6'd8 ? next_pairs[127:0] << {waiting[2:0], 4'd0} : 128'd0;
    reg [127:0] window;

    integer i;
    // How far the output would reach after each pair; which of them fit.
    reg [11:0] reach;
    reg [7:0] length;
    reg [6:0] used;
    reg [11:0] beyond;
    reg cut;
    reg [7*PAIRS-1:0] ends;
    reg [8*PAIRS-1:0] values;
    always @* begin
        reach = {6'd0, fill};
        length = 0;
        used = 0;
        window = 0;
        beyond = 0;
        cut = 0;
        for (i = 0; i < PAIRS; i = i + 1) begin
            window[16*i +: 16] = i[5:0] < waiting ? pairs[16*i +: 16] : behind[16*i +: 16];
            length = i[6:0] < there ? window[16*i +: 8] : 8'd0;
            reach = reach + {4'd0, length};
            values[8*i +: 8] = window[16*i+8 +: 8];
            ends[7*i +: 7] = reach > 12'd64 ? 7'd64 : reach[6:0];
            if (!cut && reach > 12'd64) begin
                cut = 1;
                beyond = reach - 12'd64;
            end else if (!cut && i[6:0] < there) used = used + 7'd1;
        end
    end
    wire full = reach >= 12'd64;
    // This flit has been expanded; with it the packet, in this flit or with the next.
    wire emptied = used >= {1'b0, waiting};
    wire closes_both = both && next_last && used == there;
    wire closes = (last && emptied) || closes_both;
    // What is not full waits for what follows, unless nothing does.
    wire advance = have && go && (last || next_have || full);
    // The next flit takes the place of this one.
    wire move = next_have && (!have || (advance && emptied));
    wire [6:0] beyond_waiting = used - {1'b0, waiting};
    wire [6:0] skipped = !have || last ? 7'd0 : beyond_waiting;
    wire [511:0] shifted = (move ? next_pairs : pairs) >> {move ? skipped[5:0] : used[5:0], 4'd0};

    // Stage 2's flit: each byte has the value of the first run that ends after it.
    function [511:0] below;
        input [6:0] bytes;
        below = ~({512{1'b1}} << {bytes, 3'd0});
    endfunction

    reg [511:0] filled, mask;
    always @* begin
        filled = {64{values2[8*(PAIRS-1) +: 8]}};
        mask = 0;
        for (i = PAIRS - 2; i >= 0; i = i - 1) begin
            mask = below(ends2[7*i +: 7]);
            filled = (mask & {64{values2[8*i +: 8]}}) | (~mask & filled);
        end
        mask = below(begin2);
        filled = (mask & held) | (~mask & filled);
    end

    wire put = have2 && emit2;
    assign go = !put || room;
    assign s_ready = runs && (!next_have || move);

    weld_fifo #(.WIDTH(520), .LOG(1)) out (
        .clk(clk), .rst(rst),
        .in_valid(put), .in_ready(room), .in_data({last2, len2, filled}),
        .out_valid(m_valid), .out_ready(m_ready), .out_data({m_last, m_len, m_data}),
        .level()
    );

    always @(posedge clk) begin
        if (take) begin
            next_pairs <= s_data;
            next_waiting <= s_len[6:1];
            next_last <= s_last;
        end
        if (move || advance)
            pairs <= {shifted[511:8], advance && cut ? beyond[7:0] : shifted[7:0]};
        if (move) begin
            waiting <= next_waiting - skipped[5:0];
            last <= next_last;
        end else if (advance) waiting <= waiting - used[5:0];
        if (advance) begin
            begin2 <= {1'b0, fill};
            ends2 <= ends;
            values2 <= values;
            emit2 <= full || closes;
            last2 <= closes;
            len2 <= full ? 7'd64 : reach[6:0];
        end
        if (go && have2) held <= filled;

        if (rst) begin
            broken <= 0;
            have <= 0;
            next_have <= 0;
            have2 <= 0;
            fill <= 0;
            seen <= 0;
            first <= 1;
        end else begin
            if (take && s_last && s_len[0]) broken <= 1;
            if (take) begin
                first <= s_last;
                seen <= (first ? 32'd0 : seen) + {26'd0, s_len[6:1]};
            end
            next_have <= take || (next_have && !move);
            // Where both flits have been expanded, the one that moves has nothing left.
            have <= (move && !(advance && closes_both)) || (have && !(advance && emptied));
            if (go) have2 <= advance;
            if (advance) fill <= full || closes ? 6'd0 : reach[5:0];
        end
    end

    assign status = !done ? 2'd0 : count != 0 ? 2'd2 : broken ? 2'd3 : 2'd1;
    assign d_value = seen;
    assign d_known = d_port == 0;

    wire unused = &{1'b0, beyond[11:8], skipped[6]};
endmodule
