//! Colours and characters.

use ratatui::style::{Color, Modifier, Style};

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Theme {
    pub(crate) is_coloured: bool,
    pub(crate) is_ascii: bool,
}

/// The meaning of a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Hue {
    #[default]
    Plain,
    Head,
    Good,
    /// A state that is improving, or a value that is worth a look.
    Changing,
    Bad,
    Dim,
    Selected,
}

impl Theme {
    pub(super) fn style(self, hue: Hue) -> Style {
        let style = Style::new();
        match (hue, self.is_coloured) {
            (Hue::Head, _) => style.add_modifier(Modifier::BOLD),
            (Hue::Selected, _) => style.add_modifier(Modifier::REVERSED),
            (Hue::Good, true) => style.fg(Color::Green),
            (Hue::Changing, true) => style.fg(Color::Yellow),
            (Hue::Bad, true) => style.fg(Color::Red),
            (Hue::Bad, false) => style.add_modifier(Modifier::BOLD),
            (Hue::Dim, true) => style.add_modifier(Modifier::DIM),
            (Hue::Plain, _) | (Hue::Good | Hue::Changing | Hue::Dim, false) => style,
        }
    }

    /// The mark of a text that is cut.
    pub(super) fn cut(self) -> &'static str {
        if self.is_ascii { "~" } else { "\u{2026}" }
    }

    pub(super) fn rule(self) -> &'static str {
        if self.is_ascii { "-" } else { "\u{2500}" }
    }

    /// Draws parts from 0 to 1 as a line of bars.
    pub(super) fn bars(self, parts: &[f64]) -> String {
        const BLOCKS: [char; 9] = [
            ' ', '\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}',
            '\u{2588}',
        ];
        const ASCII: [char; 9] = [' ', '.', ':', '-', '=', '+', '*', '#', '@'];
        let bars = if self.is_ascii { ASCII } else { BLOCKS };
        let bar = |part: &f64| {
            let height = (part.clamp(0.0, 1.0) * 8.0).ceil();
            bars[height as usize]
        };
        parts.iter().map(bar).collect()
    }

    /// Replaces what a terminal without Unicode can't show.
    pub(super) fn text(self, text: String) -> String {
        match self.is_ascii {
            true => text.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect(),
            false => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_eight_heights() {
        let theme = |is_ascii| Theme {
            is_coloured: false,
            is_ascii,
        };
        let parts = [0.0, 0.01, 0.5, 1.0, 7.0, f64::NAN];
        assert_eq!(theme(true).bars(&parts), " .=@@ ");
        assert_eq!(theme(false).bars(&parts), " \u{2581}\u{2584}\u{2588}\u{2588} ");
    }
}
