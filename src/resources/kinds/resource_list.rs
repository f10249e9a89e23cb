//! Resource lists: the amounts of CPU, memory and other resources in pods and nodes.

use crate::resources::scalars::QuantityText;
use crate::resources::series::{Label, Series};
use crate::resources::values::quantity::Quantity;
use crate::resources::values::resource_name::{self, Class, Reading};
use crate::wire::view::Map;

/// `v1.ResourceList`.
pub type ResourceList<'a> = Map<'a, QuantityText<'a>>;

/// Writes the series of a container's limits or requests: `labels`, then `resource` and `unit`.
pub fn pod_series(list: &ResourceList<'_>, labels: [Label<'_>; 2], series: &mut Series<'_>) {
    let [first, second] = labels;
    pod_amounts(list, |resource, unit, value| {
        series.with(&[first, second, ("resource", resource), ("unit", unit)], value);
    });
}

/// Calls `see` with resource, unit and value of each amount of a container's limits or requests.
pub fn pod_amounts(list: &ResourceList<'_>, mut see: impl FnMut(&str, &'static str, f64)) {
    amounts(list, |resource, class, quantity| match class.in_pods {
        Some(Reading::Converted) => see(resource, class.unit, quantity.converted()),
        Some(Reading::Integer) => see(resource, class.unit, quantity.integer() as f64),
        None => {}
    });
}

/// Writes the series of a node's capacity or allocatable amounts: `resource` and `unit`.
pub fn node_series(list: &ResourceList<'_>, series: &mut Series<'_>) {
    amounts(list, |resource, class, quantity| {
        series.with(&[("resource", resource), ("unit", class.unit)], quantity.converted());
    });
}

/// Calls `see` with the sanitised name, class and quantity of each amount that has a class.
#[inline]
fn amounts(list: &ResourceList<'_>, mut see: impl FnMut(&str, Class, Quantity)) {
    for (name, text) in list.entries().iter() {
        let Some(quantity) = text.quantity() else { continue };
        let resource = resource_name::sanitise(name);
        resource_name::classes(name).for_each(|class| see(&resource, class, quantity));
    }
}

/// Calls `write` with the unmodified name and the converted amount of each resource.
pub fn verbatim(list: &ResourceList<'_>, mut write: impl FnMut(&str, f64)) {
    for (name, text) in list.entries().iter() {
        if let Some(quantity) = text.quantity() {
            write(name, quantity.converted());
        }
    }
}
