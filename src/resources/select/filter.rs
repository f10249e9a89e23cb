//! Family selection: `--metric-allowlist`, `--metric-denylist` and `--metric-opt-in-list`.
//!
//! The patterns of the three lists decide about each family by its name; the module does not know the families.
//!
//! Allow and deny patterns have ECMAScript syntax, including look-around and back-references; opt-in patterns have RE2
//! syntax. All are unanchored: `kube_pod_info` also matches `my_kube_pod_info_extra`.

mod ecmascript;

use thiserror::Error;

use crate::go;

/// An error in the lists.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FilterError {
    /// A pattern is not a regular expression.
    #[error("{list}: pattern {pattern:?}: {reason}")]
    Pattern {
        /// The flag of the list that contains the pattern.
        list: &'static str,
        /// The pattern.
        pattern: String,
        /// The compiler's message.
        reason: String,
    },
    /// Both the allow list and the deny list have entries.
    #[error("--metric-allowlist and --metric-denylist exclude each other; give only one of them")]
    Both,
}

/// The three lists, compiled.
#[derive(Debug, Default, Clone)]
pub struct FamilyFilter {
    allow: Vec<fancy_regex::Regex>,
    deny: Vec<fancy_regex::Regex>,
    opt_in: Vec<OptIn>,
}

/// A pattern of the opt-in list.
#[derive(Debug, Clone)]
struct OptIn {
    pattern: regex::bytes::Regex,
    /// It names families that only kstatd has.
    names_own: bool,
}

impl FamilyFilter {
    /// Compiles the lists. An empty allow list allows every family.
    ///
    /// # Errors
    ///
    /// A pattern is not a regular expression, or neither `allow` nor `deny` is empty.
    pub fn new(allow: &[String], deny: &[String], opt_in: &[String]) -> Result<Self, FilterError> {
        if !allow.is_empty() && !deny.is_empty() {
            return Err(FilterError::Both);
        }
        Ok(Self {
            allow: compile("--metric-allowlist", allow, ecmascript)?,
            deny: compile("--metric-denylist", deny, ecmascript)?,
            opt_in: compile("--metric-opt-in-list", opt_in, re2)?,
        })
    }

    /// True if the family `name` is exposed. `opt_in` families are off unless the opt-in list names them. A pattern for
    /// all families, such as `.*`, does not name those that only kstatd has.
    pub fn enabled(&self, name: &str, opt_in: bool) -> bool {
        // A pattern that exceeds the engine's backtracking limit matches nothing.
        let any = |list: &[fancy_regex::Regex]| {
            list.iter().any(|pattern| pattern.is_match(name).unwrap_or(false))
        };
        let is_own = name.starts_with(OWN);
        let names = |opt_in: &OptIn| {
            (!is_own || opt_in.names_own) && opt_in.pattern.is_match(name.as_bytes())
        };
        (!opt_in || self.opt_in.iter().any(names))
            && (self.allow.is_empty() || any(&self.allow))
            && !any(&self.deny)
    }
}

/// The beginning of the names of families that kube-state-metrics does not have.
const OWN: &str = "kstatd_";

/// The size limit of one compiled pattern, in bytes. Go has no small one; this keeps a pattern from using all memory.
const SIZE_LIMIT: usize = 64 << 20;

fn ecmascript(pattern: &str) -> Result<fancy_regex::Regex, String> {
    let translated = ecmascript::translate(pattern).map_err(|error| error.to_string())?;
    fancy_regex::Regex::new(&translated).map_err(|error| error.to_string())
}

fn re2(pattern: &str) -> Result<OptIn, String> {
    let translated = go::regex::translate(pattern).map_err(|error| error.to_string())?;
    let built = regex::bytes::RegexBuilder::new(&translated.pattern).size_limit(SIZE_LIMIT).build();
    let compiled = built.map_err(|error| error.to_string())?;
    Ok(OptIn { pattern: compiled, names_own: pattern.contains(OWN) })
}

fn compile<R>(
    list: &'static str,
    patterns: &[String],
    new: impl Fn(&str) -> Result<R, String>,
) -> Result<Vec<R>, FilterError> {
    let compile = |pattern: &String| {
        let error = |reason| FilterError::Pattern { list, pattern: pattern.clone(), reason };
        new(pattern).map_err(error)
    };
    patterns.iter().map(compile).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::{self, texts};

    #[test]
    fn recorded_lists() {
        let names = texts(&recorded::file("ksm/metric_filters.json")["names"]);
        for case in recorded::cases("ksm/metric_filters.json", 31) {
            let list = |key: &str| texts(&case[key]);
            let filter = FamilyFilter::new(
                &list("metric_allowlist"),
                &list("metric_denylist"),
                &list("metric_opt_in_list"),
            );
            assert_eq!(filter.is_err(), !case["error"].is_null(), "{case}: {filter:?}");
            let Ok(filter) = filter else { continue };
            let opt_in = ["kube_pod_nodeselectors", "kube_persistentvolume_csi_attributes"];
            let kept: Vec<&str> = names
                .iter()
                .map(String::as_str)
                .filter(|name| filter.enabled(name, opt_in.contains(name)))
                .collect();
            assert_eq!(kept, texts(&case["kept"]), "{case}");
        }
    }

    #[test]
    fn opt_in_patterns_are_of_the_dialect_of_go() {
        let opt_in = |pattern: &str| FamilyFilter::new(&[], &[], &[pattern.to_owned()]);
        for pattern in
            ["a**", "x{1001}", r"\u0041", "[[:foo:]]", "(?x)n o d e", "[a--b]n", r"\Z", r"\C", "("]
        {
            assert!(opt_in(pattern).is_err(), "{pattern}");
        }
        for (pattern, kept) in [
            (r"\Qnode\E", true),
            (r"\bkube_pod_\B", true),
            ("[a&&b]", true),
            ("[^a-z&&_]", false),
            (r"\d{2", false),
            (r"\x{6e}odes|\pN", true),
            ("(?i)NODESEL", true),
        ] {
            let filter = opt_in(pattern).unwrap();
            assert_eq!(filter.enabled("kube_pod_nodeselectors", true), kept, "{pattern}");
        }
    }

    #[test]
    fn opt_in_patterns_for_everything_leave_the_families_of_kstatd_off() {
        for (pattern, is_on) in [
            (".*", false),
            ("^k", false),
            ("kstatd_", true),
            ("^kstatd_workload_.*$", false),
            (".*|kstatd_pod_workload_info", true),
        ] {
            let filter = FamilyFilter::new(&[], &[], &[pattern.to_owned()]).unwrap();
            assert_eq!(filter.enabled("kstatd_pod_workload_info", true), is_on, "{pattern}");
            assert!(filter.enabled("kstatd_pod_workload_info", false), "{pattern}");
        }
    }

    #[test]
    fn errors_name_the_list_and_the_pattern() {
        let error = FamilyFilter::new(&["a(".to_owned()], &[], &[]).unwrap_err().to_string();
        assert!(error.starts_with("--metric-allowlist: pattern \"a(\": "), "{error}");
        let error = FamilyFilter::new(&[], &[], &["(?!x)".to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("--metric-opt-in-list: pattern \"(?!x)\": "), "{error}");
    }

    #[test]
    fn endless_backtracking_ends() {
        let filter = FamilyFilter::new(&["(?=(a+)+$)b".to_owned()], &[], &[]).unwrap();
        assert!(!filter.enabled(&"a".repeat(60), false));
    }
}
