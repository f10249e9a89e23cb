//! Cuts a JSON body into the few objects that matter, as it comes: no more than one of them is ever held.
//!
//! An object is that of a member of the body itself (`{"node": {…}}`), or an element of a list that is one
//! (`{"pods": [{…}, …]}`). What it says is read by who gets it; here brackets and texts are told apart alone.

/// The longest object that is taken, in bytes.
const LONGEST: usize = 8 << 20;

/// A body that is being read.
pub(super) struct Pieces {
    /// Members that are wanted, and whether each is a list of objects.
    wanted: &'static [(&'static str, bool)],
    depth: u32,
    in_text: bool,
    escaped: bool,
    /// Whether the next text is the name of a member of the body.
    names: bool,
    name: Vec<u8>,
    /// The object that is being taken: which member, from which depth on.
    taking: Option<(&'static str, u32)>,
    object: Vec<u8>,
    ended: bool,
}

impl Pieces {
    pub(super) fn new(wanted: &'static [(&'static str, bool)]) -> Self {
        Self {
            wanted,
            depth: 0,
            in_text: false,
            escaped: false,
            names: false,
            name: Vec::new(),
            taking: None,
            object: Vec::new(),
            ended: false,
        }
    }

    /// Whether the body has come to its end.
    pub(super) const fn ended(&self) -> bool {
        self.ended
    }

    /// Takes what has come, and hands over each object that is whole.
    ///
    /// # Errors
    ///
    /// It is no JSON object, or something in it is too long; also what `with` fails with.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        mut with: impl FnMut(&'static str, &[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        for &byte in bytes {
            if self.taking.is_some() {
                if self.object.len() == LONGEST {
                    return Err(format!("an object is longer than {LONGEST} bytes"));
                }
                self.object.push(byte);
            }
            if self.in_text {
                self.text(byte);
                continue;
            }
            match byte {
                b'"' => {
                    self.in_text = true;
                    if self.depth == 1 && self.names {
                        self.name.clear();
                    }
                }
                b':' if self.depth == 1 => self.names = false,
                b',' if self.depth == 1 => self.names = true,
                b'{' | b'[' => self.open(byte)?,
                b'}' | b']' => self.close(&mut with)?,
                b' ' | b'\t' | b'\r' | b'\n' => {}
                _ if self.depth == 0 => return Err("it is no JSON object".to_owned()),
                _ => {}
            }
        }
        Ok(())
    }

    fn text(&mut self, byte: u8) {
        if self.escaped {
            self.escaped = false;
        } else if byte == b'\\' {
            self.escaped = true;
        } else if byte == b'"' {
            self.in_text = false;
        } else if self.depth == 1 && self.names && self.name.len() < 64 {
            self.name.push(byte);
        }
    }

    fn open(&mut self, byte: u8) -> Result<(), String> {
        if self.depth == 0 && (byte != b'{' || self.ended) {
            return Err("it is no JSON object".to_owned());
        }
        self.depth += 1;
        self.names = self.depth == 1;
        if byte == b'{' && self.taking.is_none() {
            let depth = self.depth;
            let member = self.wanted.iter().find(|(name, is_list)| {
                name.as_bytes() == self.name && depth == if *is_list { 3 } else { 2 }
            });
            if let Some((name, _)) = member {
                self.taking = Some((name, self.depth));
                self.object.clear();
                self.object.push(byte);
            }
        }
        Ok(())
    }

    fn close(
        &mut self,
        with: &mut impl FnMut(&'static str, &[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let Some(depth) = self.depth.checked_sub(1) else {
            return Err("it is no JSON object".to_owned());
        };
        if let Some((name, from)) = self.taking
            && from == self.depth
        {
            self.taking = None;
            with(name, &self.object)?;
        }
        self.depth = depth;
        self.ended = depth == 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: &[(&str, bool)] = &[("node", false), ("pods", true)];

    /// What is cut out of a body that comes in parts of this size, and whether it was whole.
    fn cut(body: &str, size: usize) -> Result<(Vec<String>, bool), String> {
        let (mut pieces, mut found) = (Pieces::new(WANTED), Vec::new());
        for part in body.as_bytes().chunks(size) {
            pieces.feed(part, |name, object| {
                found.push(format!("{name}={}", String::from_utf8_lossy(object)));
                Ok(())
            })?;
        }
        Ok((found, pieces.ended()))
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
            assert_eq!(cut(body, size), Ok((want.to_vec(), true)), "{size}");
        }
    }

    #[test]
    fn what_ends_early_is_not_whole_and_what_is_none_is_refused() {
        let cut_off = cut(r#"{"pods":[{"a":1},{"b":"#, 3);
        assert_eq!(cut_off, Ok((vec![r#"pods={"a":1}"#.to_owned()], false)));
        for body in ["<html>", "[{}]", "}", "null", "{} {}", "{}]"] {
            assert!(cut(body, 4).is_err(), "{body}");
        }
        assert_eq!(cut("{}", 1), Ok((Vec::new(), true)));
    }
}
