//! The interactive screen: keys and drawing. The terminal itself stays outside, so tests draw on one in memory.

use super::interval::{Interval, Sort};
use super::table::{INODE_HEADS, columns, core_line, device_line, fitted, inode_rows, slots_line, total_line};
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table};

/// Cores shown one by one, at most; the others are summed up in a line.
const CORES_MAX: usize = 8;

/// What the screen shows, and how.
#[derive(Default)]
pub struct Screen {
    /// The last interval; none before the first is over.
    pub interval: Option<Interval>,
    /// Order of tenants.
    pub sort: Sort,
    /// New intervals are not shown.
    pub paused: bool,
    /// Inode queues stand below the tenants.
    pub inodes: bool,
    /// Rows of tenants scrolled away.
    pub scroll: usize,
}

/// What a key asks of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// To end.
    Quit,
    /// To draw again.
    Draw,
    /// Nothing.
    Nothing,
}

impl Screen {
    /// A key was pressed.
    pub fn key(&mut self, key: KeyEvent) -> Asked {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Asked::Quit,
            KeyCode::Char('c') if control => return Asked::Quit,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('i') => self.inodes = !self.inodes,
            KeyCode::Down => self.scroll_by(1),
            KeyCode::PageDown => self.scroll_by(10),
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::Home => self.scroll = 0,
            _ => return Asked::Nothing,
        }
        Asked::Draw
    }

    fn scroll_by(&mut self, rows: usize) {
        let last = self.interval.as_ref().map_or(0, |i| i.tenants.len().saturating_sub(1));
        self.scroll = (self.scroll + rows).min(last);
    }

    /// Draws all of it.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let keys = format!(
            "q quit  s sort: {:?}  p {}  i inode queues  arrows scroll",
            self.sort,
            if self.paused { "PAUSED" } else { "pause" }
        );
        let Some(i) = &self.interval else {
            let [body, foot] = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(frame.area());
            frame.render_widget(Paragraph::new("the first interval is not over yet"), body);
            frame.render_widget(Paragraph::new(keys), foot);
            return;
        };
        let cores = self.cores(i, frame.area().width);
        let (tenants, queues) = if self.inodes { (2, 1) } else { (1, 0) };
        let [head, middle, table, below, foot] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Length(cores.len() as u16),
            Constraint::Fill(tenants),
            Constraint::Fill(queues),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(vec![Line::from(device_line(i)), Line::from(total_line(i))]), head);
        frame.render_widget(Paragraph::new(cores), middle);
        self.tenants(frame, table, i);
        if self.inodes {
            inode_queues(frame, below, i);
        }
        frame.render_widget(Paragraph::new(keys).style(reversed()), foot);
    }

    fn cores(&self, i: &Interval, width: u16) -> Vec<Line<'static>> {
        let bar = usize::from(width).saturating_sub(60).clamp(8, 40);
        let mut lines: Vec<Line<'static>> =
            i.cores.iter().take(CORES_MAX).map(|c| Line::from(core_line(c, bar))).collect();
        let rest = i.cores.get(CORES_MAX..).unwrap_or_default();
        if !rest.is_empty() {
            let mean = rest.iter().map(|c| c.busy).sum::<f64>() / rest.len() as f64;
            lines.push(Line::from(format!("{} more cores, {:.0}% busy on average", rest.len(), mean * 100.0)));
        }
        let slots = slots_line(i);
        if !slots.is_empty() {
            lines.push(Line::from(slots));
        }
        lines
    }

    fn tenants(&self, frame: &mut Frame<'_>, area: Rect, i: &Interval) {
        let mut tenants = i.tenants.clone();
        self.sort.apply(&mut tenants);
        let shown = columns(usize::from(area.width));
        let right = |text: &str, width: usize| format!("{:>width$}", fitted(text, width));
        let cells = |at: usize, text: &str, width: usize| {
            // The first column takes what is left, so its width is not known here.
            Cell::from(if at == 0 { text.to_owned() } else { right(text, width) })
        };
        let head = Row::new(shown.iter().enumerate().map(|(at, c)| cells(at, c.title, c.width))).style(reversed());
        let rows = tenants
            .iter()
            .skip(self.scroll)
            .map(|t| Row::new(shown.iter().enumerate().map(|(at, c)| cells(at, &(c.cell)(t), c.width))));
        let widths = shown.iter().enumerate().map(|(at, c)| match at {
            0 => Constraint::Min(c.width as u16),
            _ => Constraint::Length(c.width as u16),
        });
        frame.render_widget(Table::new(rows, widths).header(head).column_spacing(1), area);
    }
}

fn inode_queues(frame: &mut Frame<'_>, area: Rect, i: &Interval) {
    let rows = inode_rows(i).into_iter().map(Row::new);
    let widths = [12, 12, 8, 8, 6, 9].map(Constraint::Length);
    let head = Row::new(INODE_HEADS).style(reversed());
    frame.render_widget(Table::new(rows, widths).header(head).column_spacing(1), area);
}

fn reversed() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}
