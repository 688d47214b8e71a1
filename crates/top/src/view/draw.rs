//! Draws a frame into a buffer of cells.

use super::View;
use super::rows::table;
use super::table::{Table, cut, width};
use super::theme::{Hue, Theme};
use super::units::{bytes, count, percent, printable, rate};
use crate::model::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// The parts of the picture that are not in the frame.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pane {
    pub(crate) view: View,
    /// The selected row.
    pub(crate) selected: Option<usize>,
    /// A title and lines in place of the table, and the number of lines above the first shown one.
    pub(crate) text: Option<(String, Vec<String>, usize)>,
    /// The last line: a question, a message, or the meaning of keys.
    pub(crate) footer: String,
    pub(crate) is_urgent: bool,
    pub(crate) is_frozen: bool,
}

/// The fewest lines of a terminal for requests below the pools.
const LINES_FOR_REQUESTS: u16 = 14;
/// Lines without rows: title, views, heads, footer.
const AROUND: u16 = 4;

/// Draws a frame. `rows`: the arranged table of the view.
pub(crate) fn draw(frame: &Frame, rows: &Table, pane: &Pane, theme: Theme, buffer: &mut Buffer) {
    let area = buffer.area;
    let mut canvas = Canvas { buffer, theme, area };
    canvas.line(0, &title(frame, pane), Hue::Head);
    canvas.views(1, pane.view);
    let end = area.height.saturating_sub(1);
    match &pane.text {
        Some((title, lines, above)) => {
            canvas.line(2, title, Hue::Head);
            let shown = lines.iter().skip(*above);
            for (at, line) in (3..end).zip(shown) {
                canvas.line(at, &printable(line), Hue::Plain);
            }
        }
        None => canvas.body(frame, rows, pane, 2, end),
    }
    if area.height > 2 {
        canvas.line(
            end,
            &pane.footer,
            if pane.is_urgent { Hue::Selected } else { Hue::Dim },
        );
    }
}

/// Draws a frame as plain text, with all of its rows.
pub(crate) fn plain(frame: &Frame, view: View, columns: u16, theme: Theme) -> String {
    let rows = table(view, frame, theme);
    let pane = Pane {
        view,
        footer: remark(frame).unwrap_or_default(),
        ..Pane::default()
    };
    let requests = table(View::Requests, frame, theme).rows.len();
    let lines = usize::from(AROUND) + rows.rows.len().max(1) + requests + 3;
    let lines = u16::try_from(lines).unwrap_or(u16::MAX).max(LINES_FOR_REQUESTS);
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, lines));
    draw(frame, &rows, &pane, theme, &mut buffer);
    let mut text = Vec::new();
    for y in 0..lines {
        let mut line = String::new();
        let mut x = 0;
        while x < columns {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            x += u16::try_from(width(symbol)).unwrap_or(1).max(1);
        }
        let is_rule = line.starts_with(&theme.rule().repeat(2));
        let line = if is_rule {
            line.trim_end_matches(theme.rule())
        } else {
            &line
        };
        text.push(line.trim_end().to_owned());
    }
    // Plain text has no use for the list of views.
    text.remove(1);
    text.dedup_by(|line, before| line.is_empty() && before.is_empty());
    text.join("\n").trim_end().to_owned() + "\n"
}

/// Returns the gaps of a frame and their reasons.
pub(crate) fn remark(frame: &Frame) -> Option<String> {
    frame.is_denied.then(|| {
        "what processes wait for: no rights (root, or their user where ptrace(2) is allowed, may look)"
            .to_owned()
    })
}

fn title(frame: &Frame, pane: &Pane) -> String {
    let totals = &frame.totals;
    let mut title = format!(
        "forkyard {}  {} {}  {} req/s  busy {}/{}  queue {}",
        frame.version,
        totals.pools,
        if totals.pools == 1 { "pool" } else { "pools" },
        rate(totals.requests_per_second),
        totals.busy,
        totals.workers,
        count(totals.waiting),
    );
    title += &format!("  cpu {}  mem {}", percent(totals.cpu), bytes(totals.memory));
    if pane.is_frozen {
        title = format!("[frozen] {title}");
    }
    title
}

struct Canvas<'b> {
    buffer: &'b mut Buffer,
    theme: Theme,
    area: Rect,
}

impl Canvas<'_> {
    /// Writes a text, and returns the column behind it.
    fn put(&mut self, x: u16, y: u16, text: &str, hue: Hue) -> u16 {
        if y >= self.area.height || x >= self.area.width {
            return x;
        }
        let room = usize::from(self.area.width - x);
        let style = self.theme.style(hue);
        self.buffer.set_stringn(x, y, text, room, style).0
    }

    fn line(&mut self, y: u16, text: &str, hue: Hue) {
        let text = self.theme.text(text.to_owned());
        let text = cut(&text, usize::from(self.area.width), self.theme.cut());
        self.put(0, y, &text, hue);
    }

    fn views(&mut self, y: u16, shown: View) {
        // In a narrow terminal only the current view has its name.
        let all: usize = View::ALL.iter().map(|view| view.name().len() + 3).sum();
        let is_narrow = all > usize::from(self.area.width);
        let mut x = 0;
        for (at, view) in View::ALL.into_iter().enumerate() {
            let is_shown = view == shown;
            let name = if is_narrow && !is_shown { "" } else { view.name() };
            let hue = if is_shown { Hue::Selected } else { Hue::Dim };
            x = self.put(x, y, format!("{} {name}", at + 1).trim_end(), hue);
            x = self.put(x, y, " ", Hue::Plain);
        }
    }

    fn body(&mut self, frame: &Frame, rows: &Table, pane: &Pane, begin: u16, end: u16) {
        let has_requests = pane.view == View::Pools && self.area.height >= LINES_FOR_REQUESTS;
        if !has_requests {
            self.table(rows, pane.selected, begin, end);
            return;
        }
        // Pools have half of the lines at most, unless requests need fewer.
        let requests = table(View::Requests, frame, self.theme);
        let lines = |table: &Table| u16::try_from(table.rows.len().max(1) + 1).unwrap_or(u16::MAX);
        let all = end.saturating_sub(begin);
        let half = (all / 2).max(all.saturating_sub(lines(&requests).saturating_add(2)));
        let middle = begin + lines(rows).min(half);
        self.table(rows, pane.selected, begin, middle);
        let rule = self.theme.rule();
        let title = format!("{rule}{rule} requests in flight, longest first ");
        let rest = usize::from(self.area.width).saturating_sub(width(&title));
        self.put(0, middle + 1, &(title + &rule.repeat(rest)), Hue::Dim);
        self.table(&requests, None, middle + 2, end);
    }

    /// Draws heads and rows between two lines, so that the selected row is seen.
    fn table(&mut self, table: &Table, selected: Option<usize>, begin: u16, end: u16) {
        if begin >= end {
            return;
        }
        let (heads, rows) = table.lines(usize::from(self.area.width), self.theme);
        self.put(0, begin, &heads, Hue::Head);
        let room = usize::from(end - begin - 1);
        if rows.is_empty() {
            self.line(
                (begin + 1).min(end.saturating_sub(1).max(begin)),
                &table.empty,
                Hue::Dim,
            );
            return;
        }
        let above = selected.map_or(0, |selected| (selected + 1).saturating_sub(room));
        for (y, (at, cells)) in (begin + 1..end).zip(rows.into_iter().enumerate().skip(above)) {
            let is_selected = selected == Some(at);
            let mut x = 0;
            for (text, hue) in cells {
                x = self.put(x, y, &text, if is_selected { Hue::Selected } else { hue });
            }
            if is_selected {
                let rest = usize::from(self.area.width.saturating_sub(x));
                self.put(x, y, &" ".repeat(rest), Hue::Selected);
            }
        }
    }
}
