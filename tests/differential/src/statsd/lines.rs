//! Random lines.

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::mapping::SEGMENTS;

/// A generator of lines. Values and rates are dyadic, so that sums do not depend on the order of their terms.
pub struct Lines<'a> {
    pub rng: &'a mut StdRng,
    /// Types of the lines.
    pub kinds: &'a [&'a str],
}

impl Lines<'_> {
    fn pick<'a>(&mut self, values: &[&'a str]) -> &'a str {
        values.choose(self.rng).copied().unwrap_or_default()
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.rng.random_range(0..one_in) == 0
    }

    fn name(&mut self) -> String {
        if self.chance(12) {
            let odd = [
                "plain",
                "Upper.Case",
                "with-dash--es",
                "1digit",
                "sp ace",
                "ünï.cödé",
                "web..x",
                "web.",
                ".x",
                "slash/es",
                "a.b.c.d.e.f",
                "c:lon",
            ];
            return self.pick(&odd).to_owned();
        }
        let segments: Vec<&str> =
            (0..self.rng.random_range(1..5)).map(|_| self.pick(SEGMENTS)).collect();
        segments.join(".")
    }

    fn value(&mut self, kind: &str) -> String {
        let is_observer = !matches!(kind, "c" | "g" | "s");
        if self.chance(60) {
            let odd: &[&str] = match is_observer {
                false => &["inf", "+Inf", "-infinity", "0x10", "1e400", "-0", "1e-320"],
                true => &["inf", "-Inf", "-0", "1e300", "1e-300", "5e-324"],
            };
            return self.pick(odd).to_owned();
        }
        let eighths = self.rng.random_range(0..4000u32);
        if kind == "ms" {
            // Milliseconds become seconds: a multiple of 125 stays dyadic.
            return (eighths * 125).to_string();
        }
        let fraction = self.pick(&["", ".5", ".25", ".125", ".0", "."]);
        let text = format!("{}{fraction}", eighths / 8);
        match self.rng.random_range(0..12) {
            0 => self.pick(&["1e3", "0x1p-3", "1_000", "2.5E1", ".5", "0"]).to_owned(),
            1 => format!("-{text}"),
            2 => format!("+{text}"),
            _ => text,
        }
    }

    fn tags(&mut self, pair: &str, list: &str) -> String {
        let keys =
            ["env", "region", "Weird-Key", "dots.in.key", "0start", "sp ace", "queue", "kéy"];
        let values = ["prod", "a b", "quo\"te", "back\\slash", "ünï", "1", "x=y", "%s", "$1"];
        let mut tags: Vec<String> = Vec::new();
        for _ in 0..self.rng.random_range(1..4) {
            tags.push(format!("{}{pair}{}", self.pick(&keys), self.pick(&values)));
        }
        match self.rng.random_range(0..20) {
            0 => tags.push("nosep".to_owned()),
            1 => tags.push(String::new()),
            2 => tags.push(format!("{pair}novalue")),
            3 => tags.push(format!("nokey{pair}")),
            _ => {}
        }
        tags.join(list)
    }

    /// Returns a line without a line feed.
    pub fn line(&mut self) -> Vec<u8> {
        if self.chance(12) {
            return self.malformed();
        }
        let kind = self.kinds.choose(self.rng).copied().unwrap_or("c");
        let (mut name, mut tail, mut dog) = (self.name(), String::new(), false);
        match self.rng.random_range(0..8) {
            0 => {
                tail = format!("|#{}", self.tags(":", ","));
                dog = true;
            }
            1 => name = format!("{name},{}", self.tags("=", ",")),
            2 => name = format!("{name}#{}", self.tags("=", ",")),
            3 => {
                let middle = (0..=name.len() / 2).rev().find(|at| name.is_char_boundary(*at));
                let (start, end) = name.split_at(middle.unwrap_or_default());
                name = format!("{start}[{}]{end}", self.tags("=", ","));
            }
            _ => {}
        }
        let mut rate = "";
        if self.chance(5) {
            rate = match kind {
                "c" => self.pick(&["|@0.5", "|@0.25", "|@0.125", "|@1", "|@0", "|@x", "|@"]),
                _ => self.pick(&["|@0.5", "|@0.3", "|@0.7", "|@0.1", "|@2", "|@-1", "|@x"]),
            };
        }
        match self.rng.random_range(0..12) {
            0 => tail.push_str("|c:ci-abc"),
            1 if dog => tail.push_str("|T1656581400"),
            _ => {}
        }
        let is_observer = !matches!(kind, "c" | "g" | "s");
        let value = self.value(kind);
        let line = match self.rng.random_range(0..10) {
            0 if is_observer => {
                let more = [self.value(kind), self.value(kind)].join(":");
                format!("{name}:{value}:{more}|{kind}{rate}{tail}")
            }
            // Several samples without a tag section, which would make them a single sample.
            1 if tail.is_empty() => {
                let other = self.kinds.choose(self.rng).copied().unwrap_or("c");
                let more = self.value(other);
                format!("{name}:{value}|{kind}{rate}:{more}|{other}")
            }
            _ => format!("{name}:{value}|{kind}{rate}{tail}"),
        };
        line.into_bytes()
    }

    fn malformed(&mut self) -> Vec<u8> {
        let lines: &[&[u8]] = &[
            b"",
            b"foo",
            b":1|c",
            b"foo:|c",
            b"foo:1",
            b"foo:1|",
            b"foo:1|c|",
            b"foo:1|x",
            b"foo:abc|c",
            b"foo:1|c|@",
            b"foo:1|c|#",
            b"foo:1|c|#a:b,,",
            b"foo:1|c|#nosep",
            b"foo:1:2|c",
            b"foo:1:2|g|#a:b",
            b"foo:1|c|@0.5|@0.25",
            b"foo:1|C",
            b"foo:1|s",
            b"\xff\xfe:1|c",
            b"foo:1|c|#a:\xff",
            b"foo[bar:1|c",
            b"foo#a=b:1|c|#x:y",
            b"foo,a=b:1|c|#x:y",
            b"_e{5,4}:title|text",
            b"_sc|name|0|#a:b",
            b" foo:1|c",
            b"foo :1|c",
            b"foo: 1|c",
            b"foo:1 |c",
            b"foo:1|c\r",
            b"foo:1|c|#a:b|c:",
            b"foo:1|c|#a:b|e:x",
            b"foo:1|c|q",
            b"foo:1|c|2|3|4|5|6",
            b"foo:1|ms|@0.5|#a:b|@0.25",
            b"foo:1.2.3|g",
            b"foo:--1|g",
            b"foo:+|g",
            b"foo:1|c|c:",
            b"foo:1|c|T1|#a:b",
            b"foo:1|c:2|",
            b"foo:1|ms:x|h:3|d",
            b"foo:1|g|#",
            b"foo:1|c|##a:b",
            b"foo:1|c|#a:b:c",
            b"foo,:1|c",
            b"foo#:1|c",
            b"foo[]:1|c",
            b"foo[a=b:1|c",
            b"foo;a=b:1|c",
            b"foo:\x00|c",
            b"f\x00o:1|c",
            b"foo:1|c|@0.1:2|c|@0.5",
        ];
        // Expiring names must keep their type.
        let lines: Vec<&[u8]> = lines
            .iter()
            .copied()
            .filter(|line| self.kinds.len() > 2 || !line.starts_with(b"foo"))
            .collect();
        lines.choose(self.rng).copied().unwrap_or_default().to_vec()
    }
}
