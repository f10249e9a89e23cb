//! `limitranges` (v1 LimitRange).

use crate::resources::prelude::*;

object! {
    /// The fields of a LimitRange that metrics read.
    pub struct LimitRange<'a> {
        spec: LimitRangeSpec<'a> = 2 "spec" struct LimitRangeSpec {
            limits: Vec<Limit<'a>> = 1 "limits" struct Limit {
                kind: Str<'a> = 1 "type",
                max: ResourceList<'a> = 2 "max",
                min: ResourceList<'a> = 3 "min",
                default: ResourceList<'a> = 4 "default",
                default_request: ResourceList<'a> = 5 "defaultRequest",
                max_limit_request_ratio: ResourceList<'a> = 6 "maxLimitRequestRatio",
            },
        },
    }
}

kind! {
    /// The LimitRange kind.
    LimitRanges: LimitRange, "limit range", Api::namespaced("", "v1", "LimitRange", "limitranges");
    identity namespace_and::<Self>("limitrange");
    families range, s:
        stable "kube_limitrange" ["resource", "type", "constraint"],
            "The bounds and defaults that the limit range sets for a resource.":
            constraints(range, s);
        created(Stable, "kube_limitrange_created");
}

fn constraints(range: &LimitRange<'_>, s: &mut Series<'_>) {
    for limit in &range.spec.limits {
        let lists = [
            ("min", &limit.min),
            ("max", &limit.max),
            ("default", &limit.default),
            ("defaultRequest", &limit.default_request),
            ("maxLimitRequestRatio", &limit.max_limit_request_ratio),
        ];
        for (constraint, list) in lists {
            resource_list::verbatim(list, |resource, value| {
                let labels =
                    [("resource", resource), ("type", &limit.kind), ("constraint", constraint)];
                s.with(&labels, value);
            });
        }
    }
}
