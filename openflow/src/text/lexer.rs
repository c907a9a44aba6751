//! Splits flow text into `key`, `key=value`, `key:value` and `key(value)`.

use super::error::ParseError;

/// One element of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item<'a> {
    /// Up to the separator; still quoted if it was.
    pub(super) key: &'a str,
    /// What follows `=` or `:`, or what the parentheses enclose.
    pub(super) value: Option<&'a str>,
}

/// A list in which commas and white space separate, outside quotes and parentheses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lexer<'a> {
    rest: &'a str,
}

fn separates(c: char) -> bool {
    matches!(c, ',' | ' ' | '\t' | '\r' | '\n')
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { rest: text }
    }

    /// All that has not been read.
    pub(super) fn rest(self) -> &'a str {
        self.rest
    }

    /// The next element, `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Item<'a>>, ParseError> {
        self.rest = self.rest.trim_start_matches(separates);
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.take_until(|c| separates(c) || matches!(c, '=' | ':' | '('))?;
        let value = if let Some(rest) = self.rest.strip_prefix(['=', ':']) {
            self.rest = rest;
            Some(self.take_until(separates)?)
        } else if self.rest.starts_with('(') {
            let enclosed = self.take_until(separates)?;
            let inside = enclosed.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
            Some(inside.ok_or_else(|| {
                ParseError::new(format!("{key}{enclosed}: expected nothing after the `)'"))
            })?)
        } else {
            None
        };
        if key.is_empty() {
            let value = value.unwrap_or_default();
            return Err(ParseError::new(format!(
                "`{value}' stands without a name before it (write name=value without spaces)"
            )));
        }
        Ok(Some(Item { key, value }))
    }

    /// Reads up to a character that `ends` it outside quotes and parentheses.
    fn take_until(&mut self, ends: impl Fn(char) -> bool) -> Result<&'a str, ParseError> {
        let (mut depth, mut quoted, mut escaped) = (0_u32, false, false);
        let end = self.rest.char_indices().find(|(_, c)| {
            if depth == 0 && !quoted && ends(*c) {
                return true;
            }
            match c {
                _ if escaped => escaped = false,
                '\\' if quoted => escaped = true,
                '"' => quoted = !quoted,
                '(' if !quoted => depth += 1,
                ')' if !quoted => depth = depth.saturating_sub(1),
                _ => {}
            }
            false
        });
        if end.is_none() && (depth > 0 || quoted) {
            let missing = if quoted { "closing quote" } else { "`)'" };
            return Err(ParseError::new(format!("{}: missing {missing}", self.rest)));
        }
        let (taken, rest) = self
            .rest
            .split_at_checked(end.map_or(self.rest.len(), |(at, _)| at))
            .unwrap_or_default();
        self.rest = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(text: &str) -> Result<Vec<(&str, Option<&str>)>, ParseError> {
        let mut lexer = Lexer::new(text);
        let mut items = Vec::new();
        while let Some(item) = lexer.next()? {
            items.push((item.key, item.value));
        }
        Ok(items)
    }

    #[test]
    fn splits_at_commas_and_spaces_outside_quotes_and_parentheses() {
        assert_eq!(
            items("ip, nw_src=1.2.3.4\tin_port=\"a, b\",output:3,,w(x:1,y(2)),\"p q\"").unwrap(),
            [
                ("ip", None),
                ("nw_src", Some("1.2.3.4")),
                ("in_port", Some("\"a, b\"")),
                ("output", Some("3")),
                ("w", Some("x:1,y(2)")),
                ("\"p q\"", None),
            ]
        );
        assert_eq!(items(" , ").unwrap(), []);
        assert_eq!(items("a=").unwrap(), [("a", Some(""))]);
    }

    #[test]
    fn what_does_not_close_and_what_has_no_name_is_refused() {
        for text in ["a(b", "in_port=\"x", "=5", "nw_src = 1", "w(1)2", "(1)"] {
            assert!(items(text).is_err(), "{text}");
        }
    }
}
