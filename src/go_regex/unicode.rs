//! Names of Unicode classes: what Go calls them, and what the `regex` crate does.

/// The crate's spelling of a class Go knows: general categories and their long names, scripts, a few more. Case,
/// blanks, `_` and `-` do not count.
pub(super) fn class(name: &str) -> Option<String> {
    const CATEGORIES: [&str; 72] = [
        "c",
        "other",
        "cc",
        "control",
        "cntrl",
        "cf",
        "format",
        "co",
        "privateuse",
        "cn",
        "unassigned",
        "l",
        "letter",
        "lc",
        "casedletter",
        "ll",
        "lowercaseletter",
        "lm",
        "modifierletter",
        "lo",
        "otherletter",
        "lt",
        "titlecaseletter",
        "lu",
        "uppercaseletter",
        "m",
        "mark",
        "combiningmark",
        "mc",
        "spacingmark",
        "me",
        "enclosingmark",
        "mn",
        "nonspacingmark",
        "n",
        "number",
        "nd",
        "decimalnumber",
        "digit",
        "nl",
        "letternumber",
        "no",
        "othernumber",
        "p",
        "punctuation",
        "punct",
        "pc",
        "connectorpunctuation",
        "pd",
        "dashpunctuation",
        "pe",
        "closepunctuation",
        "pf",
        "finalpunctuation",
        "pi",
        "initialpunctuation",
        "po",
        "otherpunctuation",
        "ps",
        "openpunctuation",
        "s",
        "symbol",
        "sc",
        "currencysymbol",
        "sk",
        "modifiersymbol",
        "sm",
        "mathsymbol",
        "so",
        "othersymbol",
        "z",
        "separator",
    ];
    const SEPARATORS: [&str; 6] =
        ["zl", "lineseparator", "zp", "paragraphseparator", "zs", "spaceseparator"];
    const SHORT_SCRIPTS: [&str; 8] =
        ["ahom", "cham", "kawi", "lisu", "modi", "newa", "thai", "toto"];
    let loose = name.replace([' ', '_', '-'], "").to_ascii_lowercase();
    match loose.as_str() {
        "" => None,
        "any" => Some(r"\x{0}-\x{10FFFF}".to_owned()),
        "ascii" => Some(r"\x{0}-\x{7F}".to_owned()),
        "assigned" => Some(r"[^\p{Cn}]".to_owned()),
        // Surrogates: no text has any.
        "cs" | "surrogate" => Some(r"[^\x{0}-\x{10FFFF}]".to_owned()),
        _ if CATEGORIES.contains(&loose.as_str()) || SEPARATORS.contains(&loose.as_str()) => {
            Some(format!("\\p{{gc={loose}}}"))
        }
        // Four letters are a script's code, which Go does not know, or one of few short names.
        code if code.len() == 4 && !SHORT_SCRIPTS.contains(&code) => None,
        _ => {
            let script = format!("\\p{{sc={loose}}}");
            regex::Regex::new(&script).is_ok().then_some(script)
        }
    }
}
