//! Splits a JSON body into its objects as it is received, holding at most one of them in memory.
//!
//! An object is the value of a member of the body (`{"node": {…}}`), or an element of a member that
//! is a list (`{"pods": [{…}, …]}`). This scanner only tracks brackets and strings; the receiver
//! parses the object.

/// The maximum length of an object, in bytes.
const MAX_OBJECT: usize = 8 << 20;

/// A member of the body whose objects are extracted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    name: &'static str,
    is_list: bool,
}

impl Member {
    /// A member that is an object.
    pub(super) const fn object(name: &'static str) -> Self {
        Self { name, is_list: false }
    }

    /// A member that is a list of objects.
    pub(super) const fn list(name: &'static str) -> Self {
        Self { name, is_list: true }
    }
}

/// An incremental splitter for one body.
pub(super) struct JsonSplitter {
    wanted: &'static [Member],
    depth: u32,
    in_text: bool,
    escaped: bool,
    /// True if the next string is the name of a top-level member.
    expects_name: bool,
    name: Vec<u8>,
    /// The member whose object is being captured, and the depth at which the object began.
    captured: Option<(&'static str, u32)>,
    object: Vec<u8>,
    is_complete: bool,
}

impl JsonSplitter {
    pub(super) fn new(wanted: &'static [Member]) -> Self {
        Self {
            wanted,
            depth: 0,
            in_text: false,
            escaped: false,
            expects_name: false,
            name: Vec::new(),
            captured: None,
            object: Vec::new(),
            is_complete: false,
        }
    }

    /// Returns whether the body is complete.
    pub(super) const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Parses a chunk and passes each complete object to `with`.
    ///
    /// # Errors
    ///
    /// When the body is not a JSON object or an object in it is too long, and any error of `with`.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        mut with: impl FnMut(&'static str, &[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        for &byte in bytes {
            if self.captured.is_some() {
                if self.object.len() == MAX_OBJECT {
                    return Err(format!("an object is longer than {MAX_OBJECT} bytes"));
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
                    if self.depth == 1 && self.expects_name {
                        self.name.clear();
                    }
                }
                b':' if self.depth == 1 => self.expects_name = false,
                b',' if self.depth == 1 => self.expects_name = true,
                b'{' | b'[' => self.open(byte)?,
                b'}' | b']' => self.close(&mut with)?,
                b' ' | b'\t' | b'\r' | b'\n' => {}
                _ if self.depth == 0 => return Err("not a JSON object".to_owned()),
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
        } else if self.depth == 1 && self.expects_name && self.name.len() < 64 {
            self.name.push(byte);
        }
    }

    fn open(&mut self, byte: u8) -> Result<(), String> {
        if self.depth == 0 && (byte != b'{' || self.is_complete) {
            return Err("not a JSON object".to_owned());
        }
        self.depth += 1;
        self.expects_name = self.depth == 1;
        if byte == b'{' && self.captured.is_none() {
            let depth = self.depth;
            let member = self.wanted.iter().find(|member| {
                member.name.as_bytes() == self.name && depth == if member.is_list { 3 } else { 2 }
            });
            if let Some(member) = member {
                self.captured = Some((member.name, self.depth));
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
            return Err("not a JSON object".to_owned());
        };
        if let Some((name, from)) = self.captured
            && from == self.depth
        {
            self.captured = None;
            with(name, &self.object)?;
        }
        self.depth = depth;
        self.is_complete = depth == 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: &[Member] = &[Member::object("node"), Member::list("pods")];

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
