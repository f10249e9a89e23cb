//! Splits a JSON body into its objects as it is received, holding at most one of them in memory.
//!
//! An object is the value of a member of the body (`{"node": {…}}`), or an element of a member that
//! is a list (`{"pods": [{…}, …]}`). The receiver parses the object.

use crate::wire::json::ValueScanner;

/// The maximum length of an object, in bytes.
const MAX_OBJECT: usize = 8 << 20;

/// A member of the body whose objects are extracted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) name: &'static str,
    /// True for a list of objects, false for an object.
    pub(super) is_list: bool,
}

/// The token expected next.
#[derive(Clone, Copy, PartialEq)]
enum Position {
    Start,
    Name,
    Value,
    /// An element of a wanted list.
    Element,
    End,
}

/// An incremental splitter for one body.
pub(super) struct JsonSplitter {
    wanted: &'static [Member],
    position: Position,
    /// The last named member, if it is wanted.
    member: Option<Member>,
    /// The scanner of the current value, and whether the value is kept.
    scan: Option<(ValueScanner, bool)>,
    kept: Vec<u8>,
}

impl JsonSplitter {
    pub(super) fn new(wanted: &'static [Member]) -> Self {
        Self { wanted, position: Position::Start, member: None, scan: None, kept: Vec::new() }
    }

    /// Returns whether the body is complete.
    pub(super) fn is_complete(&self) -> bool {
        self.position == Position::End
    }

    /// Parses a chunk and passes each complete object to `with`.
    ///
    /// # Errors
    ///
    /// When the body is not a JSON object or an object in it is too long, and any error of `with`.
    pub(super) fn feed(
        &mut self,
        mut bytes: &[u8],
        mut with: impl FnMut(&'static str, &[u8]) -> serde_json::Result<()>,
    ) -> Result<(), String> {
        while let Some(&byte) = bytes.first() {
            let Some((scan, is_kept)) = &mut self.scan else {
                if self.is_value(byte)? {
                    self.kept.clear();
                    let is_list = self.member.map(|member| member.is_list);
                    let is_kept = match self.position {
                        Position::Value => byte == b'{' && is_list == Some(false),
                        Position::Element => byte == b'{',
                        _ => byte == b'"',
                    };
                    self.scan = Some((ValueScanner::default(), is_kept));
                } else {
                    bytes = &bytes[1..];
                }
                continue;
            };
            let before = scan.seen;
            let end = scan.scan(bytes);
            let (part, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end - before));
            bytes = rest;
            let is_kept = *is_kept;
            if is_kept {
                if self.kept.len() + part.len() > MAX_OBJECT {
                    return Err(format!("an object is longer than {MAX_OBJECT} bytes"));
                }
                self.kept.extend_from_slice(part);
            }
            if end.is_none() {
                continue;
            }
            self.scan = None;
            match (self.position, self.member) {
                (Position::Name, _) if is_kept => {
                    let name = &self.kept[1..self.kept.len() - 1];
                    self.member =
                        self.wanted.iter().find(|one| one.name.as_bytes() == name).copied();
                    self.position = Position::Value;
                    continue;
                }
                (_, Some(member)) if is_kept => {
                    with(member.name, &self.kept).map_err(|error| error.to_string())?;
                }
                _ => {}
            }
            if self.position == Position::Value {
                self.position = Position::Name;
            }
        }
        Ok(())
    }

    /// Returns whether a value begins with this byte, which is otherwise whitespace or a token.
    fn is_value(&mut self, byte: u8) -> Result<bool, String> {
        self.position = match (self.position, byte) {
            (position, b' ' | b'\t' | b'\r' | b'\n') => position,
            (Position::Start, b'{') | (Position::Element, b']') => Position::Name,
            (Position::Start | Position::End, _) => return Err("not a JSON object".to_owned()),
            (position, b',' | b':') => position,
            (Position::Name, b'}') => Position::End,
            (Position::Value, b'[') if self.member.is_some_and(|member| member.is_list) => {
                Position::Element
            }
            _ => return Ok(true),
        };
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: &[Member] =
        &[Member { name: "node", is_list: false }, Member { name: "pods", is_list: true }];

    /// Returns the objects of a body that arrives in chunks of this size, and whether it was
    /// complete.
    fn cut(body: &str, size: usize) -> Result<(Vec<String>, bool), String> {
        let (mut pieces, mut found) = (JsonSplitter::new(WANTED), Vec::new());
        for part in body.as_bytes().chunks(size) {
            pieces.feed(part, |name, object| {
                found.push(format!("{name}={}", String::from_utf8_lossy(object)));
                Ok(())
            })?;
        }
        Ok((found, pieces.is_complete()))
    }

    #[test]
    fn wherever_it_is_cut_the_objects_are_the_same() {
        let body = r#" {"x":{"pods":[{"no":1}]},"node":{"a":"}\"{","pods":[{"no":2}]},
            "pods" : [{"b":[{}]}, {"c":"]"}],"y":[[{"no":3}]],"z":"pods"} "#;
        let want = [
            r#"node={"a":"}\"{","pods":[{"no":2}]}"#.to_owned(),
            r#"pods={"b":[{}]}"#.to_owned(),
            r#"pods={"c":"]"}"#.to_owned(),
        ];
        for size in 1..body.len() {
            assert_eq!(cut(body, size).expect("JSON"), (want.to_vec(), true), "{size}");
        }
    }

    #[test]
    fn what_ends_early_is_not_whole_and_what_is_none_is_refused() {
        let cut_off = cut(r#"{"pods":[{"a":1},{"b":"#, 3);
        assert_eq!(cut_off.expect("JSON"), (vec![r#"pods={"a":1}"#.to_owned()], false));
        for body in ["<html>", "[{}]", "}", "null", "{} {}", "{}]"] {
            assert!(cut(body, 4).is_err(), "{body}");
        }
        assert_eq!(cut("{}", 1).expect("JSON"), (Vec::new(), true));
    }
}
