//! Tables: order, filter, and the widths of columns in a terminal.

use super::Target;
use super::theme::{Hue, Theme};
use ratatui::text::Span;
use std::cmp::Ordering;

/// Spaces between columns.
const GAP: usize = 2;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub(crate) head: &'static str,
    pub(crate) kind: Kind,
    /// In a narrow terminal, columns with the highest number are left out first; 0 stays.
    pub(crate) rank: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// At the right.
    Number,
    /// At the left.
    Word,
    /// At the left, and cut to this width if there is no room.
    Text(usize),
}

/// What rows are put in order by.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Key {
    Word(String),
    /// The greatest first.
    Number(f64),
    Missing,
}

#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) key: Key,
    pub(crate) hue: Hue,
}

#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) cells: Vec<Cell>,
    pub(crate) target: Target,
}

#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
    /// The column that rows are in order by, if they are not in their own.
    pub(crate) sorted: Option<usize>,
    /// Shown if there are no rows.
    pub(crate) empty: String,
}

impl Key {
    fn compare(&self, other: &Key) -> Ordering {
        match (self, other) {
            (Key::Word(one), Key::Word(other)) => one.cmp(other),
            (Key::Number(one), Key::Number(other)) => other.total_cmp(one),
            (Key::Missing, Key::Missing) => Ordering::Equal,
            (_, Key::Missing) => Ordering::Less,
            (Key::Missing, _) => Ordering::Greater,
            (Key::Word(_), Key::Number(_)) => Ordering::Less,
            (Key::Number(_), Key::Word(_)) => Ordering::Greater,
        }
    }
}

impl Table {
    /// Keeps the rows that contain a text, in any column, and puts them in order.
    pub(crate) fn arrange(&mut self, sort: Option<usize>, filter: &str) {
        let filter = filter.to_lowercase();
        let has = |row: &Row| {
            let mut cells = row.cells.iter();
            cells.any(|cell| cell.text.to_lowercase().contains(&filter))
        };
        if !filter.is_empty() {
            let before = self.rows.len();
            self.rows.retain(has);
            if self.rows.is_empty() && before > 0 {
                self.empty = "no row has the text of the filter".to_owned();
            }
        }
        self.sorted = sort.filter(|column| *column < self.columns.len());
        if let Some(column) = self.sorted {
            let compare = |one: &Row, other: &Row| one.cells[column].key.compare(&other.cells[column].key);
            self.rows.sort_by(compare);
        }
    }

    /// Returns the columns that have room, and their widths.
    pub(super) fn widths(&self, room: usize) -> Vec<(usize, usize)> {
        let natural: Vec<usize> = (0..self.columns.len())
            .map(|column| self.natural(column))
            .collect();
        let least = |column: usize| match self.columns[column].kind {
            Kind::Text(narrowest) => natural[column].min(narrowest),
            Kind::Number | Kind::Word => natural[column],
        };
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let taken = |shown: &[usize], width: &dyn Fn(usize) -> usize| {
            let all: usize = shown.iter().map(|column| width(*column)).sum();
            all + GAP * shown.len().saturating_sub(1)
        };
        while taken(&shown, &least) > room {
            let last = shown
                .iter()
                .copied()
                .max_by_key(|column| self.columns[*column].rank);
            match last.filter(|column| self.columns[*column].rank > 0) {
                Some(last) => shown.retain(|column| *column != last),
                None => break,
            }
        }
        let mut rest = room.saturating_sub(taken(&shown, &least));
        let widths = shown.into_iter().map(|column| {
            let more = (natural[column] - least(column)).min(rest);
            rest -= more;
            (column, least(column) + more)
        });
        widths.collect()
    }

    fn natural(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| width(&row.cells[column].text));
        let mark = usize::from(self.sorted == Some(column));
        cells
            .chain([width(self.columns[column].head) + mark])
            .max()
            .unwrap_or(0)
    }

    /// Returns the heads and the texts of each row, with their meaning, ready to be drawn.
    pub(super) fn lines(&self, room: usize, theme: Theme) -> (String, Vec<Vec<(String, Hue)>>) {
        let widths = self.widths(room);
        let last = widths.len().saturating_sub(1);
        let placed = |at: usize, column: usize, width: usize, text: &str| {
            let gap = if at == 0 { 0 } else { GAP };
            let text = cut(text, width, theme.cut());
            let pad = " ".repeat(width.saturating_sub(self::width(&text)));
            match self.columns[column].kind {
                Kind::Number => format!("{:gap$}{pad}{text}", ""),
                Kind::Word | Kind::Text(_) if at == last => format!("{:gap$}{text}", ""),
                Kind::Word | Kind::Text(_) => format!("{:gap$}{text}{pad}", ""),
            }
        };
        let heads = widths.iter().enumerate().map(|(at, (column, width))| {
            let mark = if self.sorted == Some(*column) { "*" } else { "" };
            placed(
                at,
                *column,
                *width,
                &format!("{}{mark}", self.columns[*column].head),
            )
        });
        let heads = heads.collect();
        let rows = self.rows.iter().map(|row| {
            let cells = widths.iter().enumerate().map(|(at, (column, width))| {
                let cell = &row.cells[*column];
                (
                    placed(at, *column, *width, &theme.text(cell.text.clone())),
                    cell.hue,
                )
            });
            cells.collect()
        });
        (heads, rows.collect())
    }
}

/// Returns the columns that a text takes in a terminal.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Cuts a text at a width.
pub(super) fn cut(text: &str, room: usize, mark: &str) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut taken = width(mark);
    for c in text.chars() {
        taken += width(c.encode_utf8(&mut [0; 4]));
        if taken > room {
            break;
        }
        kept.push(c);
    }
    if room >= width(mark) {
        kept.push_str(mark);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let column = |head, kind, rank| Column { head, kind, rank };
        let row = |name: &str, number: Option<f64>, text: &str| Row {
            cells: vec![
                Cell {
                    text: name.to_owned(),
                    key: Key::Word(name.to_owned()),
                    hue: Hue::Plain,
                },
                Cell {
                    text: number.map_or_else(|| "-".to_owned(), |number| number.to_string()),
                    key: number.map_or(Key::Missing, Key::Number),
                    hue: Hue::Plain,
                },
                Cell {
                    text: text.to_owned(),
                    key: Key::Word(text.to_owned()),
                    hue: Hue::Plain,
                },
            ],
            target: Target::Pool(name.to_owned()),
        };
        Table {
            columns: vec![
                column("NAME", Kind::Word, 0),
                column("N", Kind::Number, 1),
                column("TEXT", Kind::Text(8), 0),
            ],
            rows: vec![
                row("b", None, "a long text that is cut"),
                row("c", Some(2.0), "x"),
                row("a", Some(10.0), "\u{5b57}\u{5b57}\u{5b57}\u{5b57}\u{5b57}"),
            ],
            sorted: None,
            empty: String::new(),
        }
    }

    fn shown(table: &Table, room: usize) -> Vec<String> {
        let theme = Theme {
            is_coloured: false,
            is_ascii: false,
        };
        let (heads, rows) = table.lines(room, theme);
        let text = |row: Vec<(String, Hue)>| row.into_iter().map(|(text, _)| text).collect::<String>();
        std::iter::once(heads).chain(rows.into_iter().map(text)).collect()
    }

    #[test]
    fn columns_are_aligned_cut_and_left_out() {
        assert_eq!(
            shown(&table(), 40),
            [
                "NAME   N  TEXT",
                "b      -  a long text that is cut",
                "c      2  x",
                "a     10  \u{5b57}\u{5b57}\u{5b57}\u{5b57}\u{5b57}"
            ]
        );
        assert_eq!(shown(&table(), 18)[1], "b      -  a long \u{2026}");
        assert_eq!(
            shown(&table(), 18)[3],
            "a     10  \u{5b57}\u{5b57}\u{5b57}\u{2026}"
        );
        assert_eq!(shown(&table(), 15)[..2], ["NAME  TEXT", "b     a long t\u{2026}"]);
    }

    #[test]
    fn rows_are_put_in_order_and_filtered() {
        let names = |sort, filter: &str| {
            let mut table = table();
            table.arrange(sort, filter);
            let names = table.rows.iter().map(|row| row.cells[0].text.clone());
            names.collect::<Vec<_>>().join("")
        };
        assert_eq!(names(None, ""), "bca");
        assert_eq!(names(Some(0), ""), "abc");
        assert_eq!(names(Some(1), ""), "acb");
        assert_eq!(names(Some(99), ""), "bca");
        assert_eq!(names(None, "LONG"), "b");
        assert_eq!(names(None, "zzz"), "");
    }

    #[test]
    fn no_width_is_too_small() {
        for room in 0..60 {
            for line in shown(&table(), room) {
                assert!(width(&line) <= room.max(40), "{room}: {line}");
            }
        }
        for room in 0..5 {
            assert!(width(&cut("\u{5b57}\u{5b57}\u{5b57}", room, "\u{2026}")) <= room);
        }
    }
}
