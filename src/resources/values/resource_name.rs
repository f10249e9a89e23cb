//! Names of compute resources (`cpu`, `hugepages-2Mi`, `nvidia.com/gpu`) as the pod and node families read them: which
//! names become metrics, their unit, and their form as a label.
//!
//! Amounts belong to [`quantity`](super::quantity).

use std::borrow::Cow;

/// Returns `name` with every character outside `[a-zA-Z0-9_]` replaced by an underscore.
pub fn sanitise(name: &str) -> Cow<'_, str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.chars().all(allowed) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(name.chars().map(|c| if allowed(c) { c } else { '_' }).collect())
}

/// The number that a family reads from a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// [`Quantity::converted`](super::quantity::Quantity::converted).
    Converted,
    /// [`Quantity::integer`](super::quantity::Quantity::integer).
    Integer,
}

/// A class of resource names with separate series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// The `unit` label.
    pub unit: &'static str,
    /// The number that the pod families print, if they print it. The node families print [`Reading::Converted`] for
    /// every class.
    pub in_pods: Option<Reading>,
}

/// Returns the classes of `name`, in the order of their series. Most names have one or none; a name such as
/// `hugepages-a/b` is both a page size and an extended resource, and has two.
pub fn classes(name: &str) -> impl Iterator<Item = Class> {
    let class = |unit, in_pods| Some(Class { unit, in_pods });
    let classes = match name {
        "cpu" => [class("core", Some(Reading::Converted)), None, None],
        "memory" | "storage" | "ephemeral-storage" => {
            [class("byte", Some(Reading::Integer)), None, None]
        }
        "pods" => [class("integer", None), None, None],
        _ => {
            let when = |applies: bool, unit| {
                if applies { class(unit, Some(Reading::Integer)) } else { None }
            };
            [
                when(is_huge_page(name), "byte"),
                when(is_attachable_volume(name), "byte"),
                when(is_extended(name), "integer"),
            ]
        }
    };
    classes.into_iter().flatten()
}

/// True for a page size, such as `hugepages-2Mi`.
pub fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// True for the volume count of a driver, such as `attachable-volumes-aws-ebs`.
pub fn is_attachable_volume(name: &str) -> bool {
    name.starts_with("attachable-volumes-")
}

/// True for an extended resource, such as `nvidia.com/gpu`: one that a vendor defines, outside the Kubernetes domains,
/// and that a quota can limit.
pub fn is_extended(name: &str) -> bool {
    if name.contains("kubernetes.io/") || name.starts_with("requests.") {
        return false;
    }
    let Some((prefix, name)) = name.split_once('/') else {
        return false;
    };
    // A quota names the resource `requests.<name>`, which must be a qualified name.
    is_subdomain(prefix, 253 - "requests.".len()) && is_name_part(name)
}

/// True for a lower-case DNS subdomain (RFC 1123) of at most `longest` bytes.
pub(crate) fn is_subdomain(text: &str, longest: usize) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= longest && text.split('.').all(|part| framed(part, inner, |byte| byte == b'-'))
}

/// True for the name part of a qualified name: 1 to 63 of `[A-Za-z0-9_.-]`, alphanumeric at both ends.
pub(crate) fn is_name_part(text: &str) -> bool {
    let between = |byte| matches!(byte, b'-' | b'_' | b'.');
    text.len() <= 63 && framed(text, |byte| byte.is_ascii_alphanumeric(), between)
}

/// True if `text` begins and ends with `outer` bytes and has only these and `between` bytes inside.
fn framed(text: &str, outer: impl Fn(u8) -> bool, between: impl Fn(u8) -> bool) -> bool {
    let (Some(&first), Some(&last)) = (text.as_bytes().first(), text.as_bytes().last()) else {
        return false;
    };
    outer(first) && outer(last) && text.bytes().all(|byte| outer(byte) || between(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_names() {
        for case in crate::recorded::cases("ksm/resource_names.json", 31) {
            let name = case["name"].as_str().unwrap();
            assert_eq!(sanitise(name), case["sanitised"].as_str().unwrap(), "{name}");
            assert_eq!(is_huge_page(name), case["huge_page"], "{name}");
            assert_eq!(is_attachable_volume(name), case["attachable_volume"], "{name}");
            assert_eq!(is_extended(name), case["extended"], "{name}");
        }
    }

    #[test]
    fn classes_of_a_name() {
        let all = |name| classes(name).map(|class| (class.unit, class.in_pods)).collect::<Vec<_>>();
        assert_eq!(all("cpu"), [("core", Some(Reading::Converted))]);
        assert_eq!(all("memory"), [("byte", Some(Reading::Integer))]);
        assert_eq!(all("pods"), [("integer", None)]);
        assert_eq!(all("hugepages-1Gi"), [("byte", Some(Reading::Integer))]);
        assert_eq!(all("example.com/gpu"), [("integer", Some(Reading::Integer))]);
        let both = [("byte", Some(Reading::Integer)), ("integer", Some(Reading::Integer))];
        assert_eq!(all("hugepages-a/b"), both);
        assert_eq!(all("unheard-of"), []);
    }
}
