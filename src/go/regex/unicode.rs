//! Names of Unicode classes: Go's, translated to those of the `regex` crate.
//!
//! The lists are those of Go 1.26, whose tables are of Unicode 15.0. The crate also knows the scripts of later
//! versions, by name and by code; Go rejects them, and so does this module.

/// Returns the crate's name of a class that Go knows: general categories and their long names, scripts, and a few more.
/// Ignores case, blanks, `_` and `-`.
pub(crate) fn class(name: &str) -> Option<String> {
    let loose = name.replace([' ', '_', '-'], "").to_ascii_lowercase();
    let is = |known: &str| known.lines().any(|name| name == loose);
    match loose.as_str() {
        "any" => Some(r"\x{0}-\x{10FFFF}".to_owned()),
        "ascii" => Some(r"\x{0}-\x{7F}".to_owned()),
        "assigned" => Some(r"[^\p{Cn}]".to_owned()),
        // Surrogates do not occur in UTF-8.
        "cs" | "surrogate" => Some(r"[^\x{0}-\x{10FFFF}]".to_owned()),
        _ if is(CATEGORIES) => Some(format!("\\p{{gc={loose}}}")),
        _ if is(SCRIPTS) => Some(format!("\\p{{sc={loose}}}")),
        _ => None,
    }
}

/// General categories by code and by name, without surrogates, one a line.
const CATEGORIES: &str = include_str!("categories.txt");

/// Scripts by name, one a line.
const SCRIPTS: &str = include_str!("scripts.txt");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_is_one_for_the_crate_too() {
        for list in [CATEGORIES, SCRIPTS] {
            for name in list.lines() {
                let class = class(name).unwrap_or_else(|| panic!("{name}"));
                regex::Regex::new(&class).unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        }
        assert_eq!((CATEGORIES.lines().count(), SCRIPTS.lines().count()), (78, 163));
    }

    #[test]
    fn class_names_ignore_case_and_separators() {
        for name in ["Miao", "m I_a-O", "Vai", "Yi", "Old_North_Arabian", "Letter", "LC", "cntrl"] {
            assert!(class(name).is_some(), "{name}");
        }
        // Known to the crate only: codes of scripts, scripts of later Unicode versions, properties that are not
        // scripts.
        for name in [
            "",
            " ",
            "Plrd",
            "Latn",
            "Zzzz",
            "Qaai",
            "Unknown",
            "Katakana_Or_Hiragana",
            "Garay",
            "Todhri",
            "Alphabetic",
            "sc=Greek",
            "Script=Greek",
            "L&",
            "IsGreek",
        ] {
            assert_eq!(class(name), None, "{name:?}");
        }
    }
}
