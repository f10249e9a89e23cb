use super::*;

fn pattern(text: &str) -> String {
    translate(text).unwrap_or_else(|error| panic!("{text}: {error:?}")).pattern
}

#[test]
fn rewrites_differing_syntax() {
    for (go, rust) in [
        (r"a{2", r"a\x{7B}2"),
        (r"a{,3}", r"a\x{7B}\x{2C}3\x{7D}"),
        (r"a{01}", r"a\x{7B}01\x{7D}"),
        (r"\Qa.b\E+", r"a\x{2E}b+"),
        (r"\Q", ""),
        (r"\d\W\b", r"[0-9][[^0-9A-Za-z_]](?-u:\b)"),
        (r"\07\012", r"\x{7}\x{A}"),
        (r"(?P<n>a)(?<n>b)", "(a)(b)"),
        (r"a(?i)*b", "a*(?i)b"),
        (r"(?ii-s)", "(?i-s)"),
        (r"(?)a", "a"),
        (r"[]a-c-]", r"[\x{5D}a-c\x{2D}]"),
        (r"[a&&+--c~~[d]", r"[a\x{26}\x{26}\x{2B}-\x{2D}c\x{7E}\x{7E}\x{5B}d]"),
        (r"[[:^alpha:]\d-z]", r"[[:^alpha:]0-9\x{2D}z]"),
        (r"\pL\P{Greek}", r"[\p{gc=l}][[^\p{sc=greek}]]"),
        ("a b#", r"a\x{20}b\x{23}"),
    ] {
        assert_eq!(pattern(go), rust, "{go}");
        regex::bytes::Regex::new(rust).unwrap_or_else(|error| panic!("{go}: {error}"));
    }
}

#[test]
fn rejects_what_go_rejects() {
    for text in [
        "(",
        ")",
        "a**",
        "a++",
        "a*+",
        "x{2}{3}",
        "*",
        "+a",
        "(*)",
        "a|*",
        "x{1001}",
        "x{2,1}",
        "(x{100}){100}",
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?<!a)",
        "(?>a)",
        "(?P=n)",
        "(?P<>a)",
        "(?P<a-b>c)",
        "(?i",
        "(?x)",
        "(?-)",
        "(?i--s)",
        "(?#c)",
        r"\1",
        r"\8",
        r"\",
        r"\C",
        r"\e",
        r"\u0041",
        r"\Z",
        r"\x4",
        r"\x{110000}",
        r"\é",
        "[a",
        "[z-a]",
        r"[a-\d]",
        r"[\b]",
        "[[:foo:]]",
        r"\pX",
        r"\p{Nope}",
        r"\p{Latn}",
        r"\p{",
        r"\p{Garay}",
        r"\p{Unknown}",
        "((x{600}){0,}){2}",
        "((x{600})*){2}",
        "((x{600})?){2}",
        "((x{600}){1,}){2}",
        "((x{600}){0,1}){2}",
        "((x{2}){501})",
        "(?:(?:x{500})|y{3}){3}",
        "x{0,1001}",
        "x{1001,}",
        "(((x{500}){2}){0,}){2}",
        "(x{0,1000}){1,2}",
        "(x{2,}){501}",
        "((x{0,}){501}){2}",
    ] {
        assert!(translate(text).is_err(), "{text}");
    }
}

#[test]
fn accepts_what_go_accepts() {
    for text in [
        r"\p{Miao}",
        r"\P{^miao}",
        r"[\p{Vai}\p{Nko}]",
        "((x{600}){0}){2}",
        "(x{600}){0,}",
        "((x{500}){2}){0,}",
        "(x{2,}){500}",
        "((x{1,}){1,}){1000}",
        "(x*){1000}",
        "(x{0,}){1000}",
        "((x{0,}){500}){2}",
        "(x{0}){1000}",
        "((((x{10}){10}){10}){1}){1}",
        "(?:x{500}y{3}){2}",
        r"(?i)\pL{1000}",
        r"(\PL{10}){100}",
    ] {
        regex::bytes::RegexBuilder::new(&pattern(text))
            .size_limit(64 << 20)
            .build()
            .unwrap_or_else(|error| panic!("{text}: {error}"));
    }
}

#[test]
fn literals_of_every_match() {
    for (text, literals, only) in [
        ("", &[""][..], true),
        (r"foo\.bar", &["foo.bar"], true),
        (r"^foo\.(.*)\.ba*r", &["foo.", ".b", "r"], false),
        ("foo|bar", &[], false),
        ("a(b|c)d", &["a", "d"], false),
        ("(?i)foo", &[], false),
        (r"\Qa.b\E+", &["a."], false),
        ("[a]b", &["b"], false),
    ] {
        let translated = translate(text).expect("valid");
        assert_eq!(
            (translated.literals.as_slice(), translated.only_literal),
            (&literals.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()[..], only),
            "{text}"
        );
    }
}

#[test]
fn errors_have_a_place() {
    let error = translate("aé(b**)").expect_err("nested");
    assert_eq!((error.at, error.message.as_str()), (6, "invalid nested repetition operator *"));
}

#[test]
fn names_of_groups() {
    let groups = translate("(a)(?P<n>b)(?:c)(?<m>d)").expect("valid").groups;
    assert_eq!(groups, [None, None, Some("n".to_owned()), Some("m".to_owned())]);
}
