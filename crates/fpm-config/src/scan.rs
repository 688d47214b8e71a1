//! Splits a line of PHP's INI language into tokens. php-fpm parses each line separately.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Label(String),
    /// `name[`, followed by a key.
    Offset(String),
    Open,
    Close,
    Text(String),
    /// A bare word, possibly a constant.
    Word(String),
    /// `${NAME}`
    Variable(String),
    Quoted(String),
    /// `${NAME` without end.
    OpenVariable,
    OpenQuote,
    /// `yes`, `on`, `true`
    True,
    /// `no`, `off`, `false`, `none`
    False,
    /// `null`
    Null,
    /// `=`, `|`, `(` and others.
    Sign(char),
    EndOfLine,
    /// The end of input, or text that matches no rule.
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanState {
    Start,
    Brackets,
    /// After `=`.
    Value,
}

#[derive(Debug)]
pub(super) struct Scanner<'t> {
    rest: &'t str,
    is_first: bool,
    /// The end of the line was read.
    pub(super) is_past_line: bool,
    /// PHP stops at text that matches no rule.
    is_cut: bool,
}

const BYTE_ORDER_MARK: char = '\u{feff}';
const BLANKS: [char; 2] = [' ', '\t'];

impl<'t> Scanner<'t> {
    pub(super) fn new(line: &'t str) -> Scanner<'t> {
        Scanner {
            rest: line,
            is_first: true,
            is_past_line: false,
            is_cut: false,
        }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty() && !self.is_cut
    }

    pub(super) fn next(&mut self, state: ScanState) -> Token {
        match state {
            ScanState::Start => self.start(),
            ScanState::Brackets => self.bracketed(),
            ScanState::Value => self.value(),
        }
    }

    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'t str {
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        self.take(end)
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches(BLANKS);
    }

    fn end_of_line(&mut self) -> Option<Token> {
        let ahead = self.rest.trim_start_matches(BLANKS);
        if ahead.is_empty() {
            self.rest = ahead;
            return Some(Token::End);
        }
        if ahead.starts_with([';', '\n', '\r']) {
            self.is_past_line = ahead.contains('\n');
            self.rest = "";
            return Some(Token::EndOfLine);
        }
        None
    }

    fn start(&mut self) -> Token {
        if self.is_first {
            // Written by editors on Windows.
            self.rest = self.rest.strip_prefix(BYTE_ORDER_MARK).unwrap_or(self.rest);
            self.is_first = false;
        }
        if let Some(end) = self.end_of_line() {
            return end;
        }
        self.skip_blanks();
        let first = self.rest.chars().next().unwrap_or('\n');
        if first == '[' {
            self.take(1);
            self.skip_blanks();
            return Token::Open;
        }
        if first == '=' {
            self.take(1);
            self.skip_blanks();
            return Token::Sign('=');
        }
        let label = self.take_while(|c| !"=\n\r\t;&|^$~(){}!\"[]\0".contains(c));
        if label.is_empty() {
            self.take(first.len_utf8());
            return if "&|^~(){}!\"$]".contains(first) {
                Token::Sign(first)
            } else {
                Token::End
            };
        }
        if self.rest.starts_with('[') {
            self.take(1);
            self.skip_blanks();
            return Token::Offset(label.to_owned());
        }
        let label = label.trim_end_matches(BLANKS);
        keyword(label).unwrap_or_else(|| Token::Label(label.to_owned()))
    }

    fn bracketed(&mut self) -> Token {
        match self.rest.chars().next() {
            Some(']') => {
                self.take(1);
                Token::Close
            }
            Some('"') => self.double_quoted_start(),
            Some('\'') => self.single_quoted(),
            Some('$') if self.rest.starts_with("${") => self.variable(),
            Some('\n' | '\r' | ';') | None => Token::End,
            Some(first) => {
                let text = self.take(first.len_utf8());
                let more = self.take_while(|c| !"$\n\r;\"']".contains(c));
                Token::Text(format!("{text}{more}"))
            }
        }
    }

    fn value(&mut self) -> Token {
        if let Some(end) = self.end_of_line() {
            return end;
        }
        if self.rest.trim_start_matches(BLANKS).starts_with('"') {
            self.skip_blanks();
            return self.double_quoted_start();
        }
        let first = self.rest.chars().next().unwrap_or('\n');
        match first {
            ' ' | '\t' => {
                // Signs consume preceding blanks.
                let ahead = self.rest.trim_start_matches(BLANKS);
                if ahead.starts_with(SIGNS) {
                    self.rest = ahead;
                    return self.value();
                }
                Token::Text(self.take_while(|c| BLANKS.contains(&c)).to_owned())
            }
            // PHP has no rule for empty single quotes; the line ends there.
            '\'' if self.rest.starts_with("''") => Token::EndOfLine,
            '\'' => self.single_quoted(),
            '$' if self.rest.starts_with("${") => self.variable(),
            _ if SIGNS.contains(&first) => {
                self.take(1);
                self.skip_blanks();
                Token::Sign(first)
            }
            _ => self.bare(),
        }
    }

    fn bare(&mut self) -> Token {
        let mut end = 0;
        let mut is_after_dollar = false;
        for (at, c) in self.rest.char_indices() {
            let is_variable = self.rest[at..].starts_with("${");
            // A dollar sign includes the next character.
            let is_taken = is_after_dollar;
            is_after_dollar = c == '$' && !is_taken;
            if is_taken && c != '\n' && c != '\r' {
                end = at + c.len_utf8();
                continue;
            }
            if is_variable || "= \t\n\r;&|^~()!\"'\0".contains(c) {
                break;
            }
            end = at + c.len_utf8();
        }
        if end == 0 {
            self.rest = "";
            self.is_cut = true;
            return Token::End;
        }
        let text = self.take(end);
        if let Some(token) = keyword(text) {
            self.skip_blanks();
            return token;
        }
        let is_word = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && !text.as_bytes()[0].is_ascii_digit();
        if is_word {
            Token::Word(text.to_owned())
        } else {
            Token::Text(text.to_owned())
        }
    }

    fn single_quoted(&mut self) -> Token {
        let inside = &self.rest[1..];
        let Some(end) = inside.find('\'') else {
            self.rest = "";
            self.is_cut = true;
            return Token::End;
        };
        let text = inside[..end].to_owned();
        self.take(end + 2);
        Token::Text(text)
    }

    fn variable(&mut self) -> Token {
        let inside = &self.rest[2..];
        let end = inside
            .find(|c| "=\n\r;&|^$~(){}!\"[]\0".contains(c))
            .unwrap_or(inside.len());
        if !inside[end..].starts_with('}') {
            return Token::OpenVariable;
        }
        let name = inside[..end].to_owned();
        self.take(end + 3);
        Token::Variable(name)
    }

    fn double_quoted_start(&mut self) -> Token {
        let inside = &self.rest[1..];
        let mut escaped = false;
        for (at, c) in inside.char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => {
                    let text = inside[..at].to_owned();
                    self.take(at + 2);
                    self.skip_blanks();
                    return Token::Quoted(text);
                }
                _ => {}
            }
        }
        if inside.contains("${") && !inside[inside.rfind("${").unwrap_or(0)..].contains('}') {
            return Token::OpenVariable;
        }
        self.is_past_line = inside.contains('\n');
        self.rest = "";
        Token::OpenQuote
    }
}

const SIGNS: [char; 8] = ['=', '&', '|', '^', '~', '(', ')', '!'];

fn keyword(text: &str) -> Option<Token> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" => Some(Token::True),
        "false" | "off" | "no" | "none" => Some(Token::False),
        "null" => Some(Token::Null),
        _ => None,
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    /// `${NAME}`
    Variable(String),
}

/// Splits double-quoted text. A backslash escapes a quote, a backslash or a dollar sign, and is literal before other
/// characters.
pub(super) fn quoted_pieces(inside: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = inside;
    while let Some(first) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix('\\') {
            match after.chars().next() {
                Some(kept @ ('"' | '\\' | '$')) => {
                    text.push(kept);
                    rest = &after[1..];
                }
                _ => {
                    text.push('\\');
                    rest = after;
                }
            }
            continue;
        }
        if let Some((name, after)) = rest.strip_prefix("${").and_then(|inner| inner.split_once('}')) {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
            pieces.push(Piece::Variable(name.to_owned()));
            rest = after;
            continue;
        }
        text.push(first);
        rest = &rest[first.len_utf8()..];
    }
    pieces.push(Piece::Text(text));
    pieces
}
