//! The grammar of PHP's INI language, one line at a time.

use super::constants;
use super::scan::{Piece, ScanState, Scanner, Token, quoted_pieces};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Statement {
    /// `[name]`
    Section(String),
    /// `name = value`, or a name alone.
    Entry(String, Option<String>),
    /// `name[key] = value`
    Item(String, String, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name<'n> {
    /// `${NAME}`
    Variable(&'n str),
    Constant(&'n str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SyntaxError(pub(super) String);

/// Parses a line. Statements before a syntax error are kept, because php-fpm acts on them first.
pub(super) fn parse(
    line: &str,
    lookup: &dyn Fn(Name<'_>) -> Option<String>,
) -> (Vec<Statement>, Option<SyntaxError>) {
    let mut parser = Parser {
        scanner: Scanner::new(line),
        ahead: None,
        state: ScanState::Start,
        lookup,
        depth: 0,
    };
    let mut statements = Vec::new();
    loop {
        match parser.statement(&mut statements) {
            Ok(true) => {}
            Ok(false) => return (statements, None),
            Err(error) => return (statements, Some(error)),
        }
    }
}

const MAX_DEPTH: usize = 100;

struct Parser<'t> {
    scanner: Scanner<'t>,
    ahead: Option<Token>,
    state: ScanState,
    lookup: &'t dyn Fn(Name<'_>) -> Option<String>,
    depth: usize,
}

impl Parser<'_> {
    fn take(&mut self) -> Token {
        match self.ahead.take() {
            Some(token) => token,
            None => self.scanner.next(self.state),
        }
    }

    fn peek(&mut self) -> &Token {
        let state = self.state;
        self.ahead.get_or_insert_with(|| self.scanner.next(state))
    }

    fn unexpected(&self, token: &Token, expecting: &str) -> SyntaxError {
        let found = match token {
            Token::Label(_) => "TC_LABEL".to_owned(),
            Token::Offset(_) => "TC_OFFSET".to_owned(),
            Token::Open => "TC_SECTION".to_owned(),
            Token::Close => "']'".to_owned(),
            Token::Text(_) => "TC_STRING".to_owned(),
            Token::Word(_) => "TC_CONSTANT".to_owned(),
            Token::Variable(_) => "TC_DOLLAR_CURLY".to_owned(),
            Token::Quoted(_) => "'\"'".to_owned(),
            Token::True => "BOOL_TRUE".to_owned(),
            Token::False => "BOOL_FALSE".to_owned(),
            Token::Null => "NULL_NULL".to_owned(),
            Token::Sign(sign) => format!("'{sign}'"),
            Token::EndOfLine => "END_OF_LINE".to_owned(),
            Token::End | Token::OpenQuote | Token::OpenVariable => "end of file".to_owned(),
        };
        let expecting = match token {
            Token::OpenQuote => ", expecting TC_DOLLAR_CURLY or TC_QUOTED_STRING or '\"'",
            Token::OpenVariable => ", expecting '}'",
            _ => expecting,
        };
        let line = if self.scanner.is_past_line { 2 } else { 1 };
        SyntaxError(format!(
            "syntax error, unexpected {found}{expecting} in Unknown on line {line}"
        ))
    }

    fn statement(&mut self, statements: &mut Vec<Statement>) -> Result<bool, SyntaxError> {
        match self.take() {
            Token::End => Ok(false),
            Token::EndOfLine => {
                self.state = ScanState::Start;
                Ok(true)
            }
            Token::Open => {
                let name = self.bracketed()?;
                statements.push(Statement::Section(name));
                Ok(true)
            }
            Token::Label(name) => {
                if *self.peek() == Token::Sign('=') {
                    self.ahead = None;
                    let value = self.value()?;
                    statements.push(Statement::Entry(name, Some(value)));
                } else {
                    statements.push(Statement::Entry(name, None));
                }
                Ok(true)
            }
            Token::Offset(name) => {
                let key = self.bracketed()?;
                match self.take() {
                    Token::Sign('=') => {}
                    other => return Err(self.unexpected(&other, ", expecting '='")),
                }
                let value = self.value()?;
                statements.push(Statement::Item(name, key, value));
                Ok(true)
            }
            other => Err(self.unexpected(&other, "")),
        }
    }

    fn bracketed(&mut self) -> Result<String, SyntaxError> {
        self.state = ScanState::Brackets;
        let mut text = String::new();
        loop {
            match self.take() {
                Token::Close => break,
                Token::Text(piece) => text.push_str(&piece),
                Token::Quoted(inside) => text.push_str(&self.expand(&inside)),
                Token::Variable(name) => text.push_str(&self.variable(&name)),
                other => return Err(self.unexpected(&other, ", expecting ']'")),
            }
        }
        self.state = ScanState::Start;
        Ok(text)
    }

    fn value(&mut self) -> Result<String, SyntaxError> {
        self.state = ScanState::Value;
        let value = match self.peek().clone() {
            Token::True => {
                self.ahead = None;
                "1".to_owned()
            }
            Token::False | Token::Null => {
                self.ahead = None;
                String::new()
            }
            Token::EndOfLine => String::new(),
            // The last line may lack a newline.
            Token::End if self.scanner.is_at_end() => String::new(),
            _ => self.expression()?,
        };
        // Peek while the rules of values apply: the scanner can't go back.
        self.peek();
        Ok(value)
    }

    /// Operators have equal precedence and associate left.
    fn expression(&mut self) -> Result<String, SyntaxError> {
        let mut left = self.operand()?;
        while let Token::Sign(sign @ ('|' | '&' | '^')) = *self.peek() {
            self.ahead = None;
            let (a, b) = (number(&left), number(&self.operand()?));
            left = match sign {
                '|' => a | b,
                '&' => a & b,
                _ => a ^ b,
            }
            .to_string();
        }
        Ok(left)
    }

    fn operand(&mut self) -> Result<String, SyntaxError> {
        match self.peek() {
            Token::Sign(sign @ ('~' | '!' | '(')) => {
                let sign = *sign;
                self.ahead = None;
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(SyntaxError("memory exhausted in Unknown on line 1".to_owned()));
                }
                let text = match sign {
                    '~' => (!number(&self.operand()?)).to_string(),
                    '!' => i32::from(number(&self.operand()?) == 0).to_string(),
                    _ => {
                        let text = self.expression()?;
                        match self.take() {
                            Token::Sign(')') => text,
                            other => {
                                return Err(self.unexpected(&other, ", expecting '^' or '|' or '&' or ')'"));
                            }
                        }
                    }
                };
                self.depth -= 1;
                Ok(text)
            }
            _ => self.string(),
        }
    }

    fn string(&mut self) -> Result<String, SyntaxError> {
        let mut text = String::new();
        let mut is_empty = true;
        loop {
            let lookup = self.lookup;
            match self.peek() {
                Token::Text(piece) => text.push_str(piece),
                Token::Word(word) => match constants::value(word) {
                    Some(value) => text.push_str(value),
                    None => text.push_str(&lookup(Name::Constant(word)).unwrap_or_else(|| word.clone())),
                },
                Token::Quoted(inside) => {
                    let inside = inside.clone();
                    text.push_str(&self.expand(&inside));
                }
                Token::Variable(name) => {
                    let name = name.clone();
                    text.push_str(&self.variable(&name));
                }
                Token::OpenQuote | Token::OpenVariable => {
                    let token = self.take();
                    return Err(self.unexpected(&token, ""));
                }
                _ if is_empty => {
                    let token = self.take();
                    return Err(self.unexpected(&token, ""));
                }
                _ => return Ok(text),
            }
            is_empty = false;
            self.ahead = None;
        }
    }

    fn expand(&self, inside: &str) -> String {
        let piece = |piece| match piece {
            Piece::Text(text) => text,
            Piece::Variable(name) => self.variable(&name),
        };
        quoted_pieces(inside).into_iter().map(piece).collect()
    }

    fn variable(&self, name: &str) -> String {
        (self.lookup)(Name::Variable(name)).unwrap_or_default()
    }
}

/// The leading integer of a text, or 0.
pub(super) fn number(text: &str) -> i32 {
    let text = text.trim_start();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let mut value: i64 = 0;
    for digit in digits[..end].bytes() {
        value = value.saturating_mul(10).saturating_add(i64::from(digit - b'0'));
    }
    if text.starts_with('-') {
        value = value.saturating_neg();
    }
    // Like atoi(3): the low half of strtol(3)'s result.
    value as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<String, String> {
        let lookup = |name: Name<'_>| match name {
            Name::Variable("HOME") => Some("/root".to_owned()),
            Name::Constant(name) => constants::of_version(name, "8.2.35"),
            Name::Variable(_) => None,
        };
        let (statements, error) = parse(&format!("a[b]={text}\n"), &lookup);
        if let Some(error) = error {
            return Err(error.0);
        }
        match statements.as_slice() {
            [Statement::Item(_, _, value)] => Ok(value.clone()),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn values_are_what_php_makes_of_them() {
        let cases = [
            ("plain text here   ", "plain text here"),
            (" yes", "1"),
            ("\"yes\"", "yes"),
            ("E_ALL & ~E_NOTICE", "32759"),
            ("1|2&4", "0"),
            ("(1|2)&2", "2"),
            ("!0", "1"),
            ("foo^bar", "0"),
            ("1.5|2", "3"),
            ("a\"b c\"d e", "ab cd e"),
            ("'a' b", "a b"),
            ("\"a\" \"b\"", "ab"),
            ("a 'b", "a "),
            ("\"\"", ""),
            ("${HOME}/x", "/root/x"),
            ("'x${HOME}'", "x${HOME}"),
            ("\"\\${HOME} \\\" \\\\ \\t\"", "${HOME} \" \\ \\t"),
            ("a;b", "a"),
            ("a # b", "a # b"),
            ("$HOME", "$HOME"),
            ("[::1]:9000", "[::1]:9000"),
            ("true1", "true1"),
            ("x ${nope} y", "x  y"),
        ];
        for (text, expected) in cases {
            assert_eq!(value(text), Ok(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn mistakes_have_phps_words() {
        let cases = [
            ("a=b", "syntax error, unexpected '=' in Unknown on line 1"),
            (
                "yes no",
                "syntax error, unexpected BOOL_FALSE in Unknown on line 1",
            ),
            ("~", "syntax error, unexpected END_OF_LINE in Unknown on line 2"),
            ("'a", "syntax error, unexpected end of file in Unknown on line 1"),
            (
                "(1",
                "syntax error, unexpected END_OF_LINE, expecting '^' or '|' or '&' or ')' in Unknown on line 2",
            ),
            (
                "\"a",
                "syntax error, unexpected end of file, expecting TC_DOLLAR_CURLY or TC_QUOTED_STRING or '\"' \
                 in Unknown on line 2",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(value(text), Err(expected.to_owned()), "{text}");
        }
    }
}
