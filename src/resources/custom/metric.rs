//! A compiled metric, which turns an object into series.

use std::borrow::Cow;

use super::config::{Block, Metric};
use super::label::{Labels, Sources, sanitised};
use super::lines::Lines;
use super::mask::Mask;
use super::number::{self, Reason};
use super::path::Path;
use super::tree::Json;
use crate::util::words::words;

/// A compiled metric: its type and settings, with their paths in compiled form.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Extractor {
    pub(super) kind: MetricType,
    pub(super) block: Block,
    path: Path,
    labels: Sources,
    value_from: Path,
}

words! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum MetricType {
        Gauge = "gauge",
        Info = "info",
        StateSet = "stateSet",
        Count = "count",
    }
}

impl MetricType {
    /// Parses a metric type, ignoring case.
    pub(super) fn of(text: &str) -> Option<Self> {
        let is_word = |kind: &Self| kind.as_str().to_lowercase() == text.to_lowercase();
        Self::ALL.into_iter().find(is_word)
    }

    /// Returns the type's settings.
    pub(super) fn block(self, metric: &Metric) -> Option<&Block> {
        match self {
            Self::Gauge => metric.gauge.as_ref(),
            Self::Info => metric.info.as_ref(),
            Self::StateSet => metric.state_set.as_ref(),
            Self::Count => metric.count.as_ref(),
        }
    }
}

impl Metric {
    /// True if it counts objects instead of having a series for each.
    pub(super) fn is_count(&self) -> bool {
        MetricType::of(&self.kind) == Some(MetricType::Count)
    }
}

impl Extractor {
    /// Compiles a metric.
    ///
    /// # Errors
    /// A description of a missing setting or an invalid path.
    pub(super) fn compile(metric: &Metric) -> Result<Self, String> {
        let kind = MetricType::of(&metric.kind)
            .ok_or_else(|| format!("unknown metric type {:?}", metric.kind.to_lowercase()))?;
        let name = kind.as_str();
        let Some(block) = kind.block(metric) else {
            return Err(format!("type is {} and each.{name} is missing", metric.kind));
        };
        let path = |text: &[String], setting| {
            Path::compile(text).map_err(|error| format!("each.{name}.{setting}: {error}"))
        };
        let labels = Sources::compile(&block.labels_from_path, &block.label_defaults)
            .map_err(|error| format!("each.{name}.{error}"))?;
        Ok(Self {
            kind,
            block: block.clone(),
            path: path(&block.path.segments, "path")?,
            labels,
            value_from: path(&block.value_from.segments, "valueFrom")?,
        })
    }

    /// True if its series may have a label of this name.
    pub(super) fn may_set(&self, label: &str) -> bool {
        [&self.block.label_from_key, &self.block.label_name]
            .iter()
            .any(|own| sanitised(own) == label)
            || self.labels.may_set(label)
    }

    /// Adds the parts of an object that the metric needs to the mask.
    pub(super) fn extend_mask(&self, mask: &mut Mask) {
        mask.follow(&self.path, &|found| {
            let each = found.select_each();
            self.labels.extend_mask(each);
            each.follow(&self.value_from, &|_| {});
            self.labels.extend_mask(found);
            found.follow(&self.value_from, &|_| {});
        });
    }

    /// Writes all series of the object to `lines`.
    pub(super) fn emit(&self, object: &Json<'_>, lines: &mut Lines<'_>) {
        match (self.kind, self.path.get(object)) {
            (MetricType::Gauge, found) => self.gauge(found, lines),
            (_, None) => {}
            (MetricType::Info, Some(found)) => self.info(found, lines),
            (MetricType::StateSet, Some(found)) => {
                let _ = found.items().iter().all(|item| self.states(item, lines));
            }
            (MetricType::Count, Some(found)) => self.count(found, lines),
        }
    }

    fn key_label<'v>(&'v self, key: &'v str, labels: &mut Labels<'v>) {
        if !self.block.label_from_key.is_empty() {
            labels.set(Cow::Borrowed(&self.block.label_from_key), Cow::Borrowed(key));
        }
    }

    fn gauge(&self, found: Option<&Json<'_>>, lines: &mut Lines<'_>) {
        match found {
            Some(map @ Json::Map(entries)) => {
                let (mut of_map, mut labels) = (Labels::default(), Labels::default());
                self.labels.add(map, &mut of_map, false);
                for (key, element) in entries {
                    let Some(value) = self.element_value(key, element, lines) else { continue };
                    labels.clear();
                    self.key_label(key, &mut labels);
                    self.labels.add(element, &mut labels, true);
                    labels.set_over(&of_map);
                    if !lines.series(&labels, value) {
                        return;
                    }
                }
            }
            Some(found) => {
                let _ = found.items().iter().all(|item| self.scalar(Some(item), lines));
            }
            None => {
                self.scalar(None, lines);
            }
        }
    }

    /// Returns the number of a map element. Elements that are not numbers are ignored silently, as maps mostly have
    /// members of several types, unless the path selects this one.
    fn element_value(&self, key: &str, element: &Json<'_>, lines: &mut Lines<'_>) -> Option<f64> {
        let zero = self.block.nil_is_zero.then_some(0.0);
        if self.value_from.single_key() == Some(key) {
            return match number::of(element) {
                Ok(number) => Some(number),
                Err(Reason::Nothing) if self.block.nil_is_zero => zero,
                Err(reason) => {
                    lines.value_error(reason, Some(element));
                    None
                }
            };
        }
        match self.value_from.get(element) {
            Some(value) => number::of(value).ok(),
            None => zero,
        }
    }

    /// Writes a value that is not a map, or an element of a list. Returns `false` to end the family.
    fn scalar(&self, found: Option<&Json<'_>>, lines: &mut Lines<'_>) -> bool {
        let mut labels = Labels::default();
        let Some(found) = found.filter(|found| !matches!(found, Json::Null)) else {
            if self.block.nil_is_zero {
                return lines.series(&labels, 0.0);
            }
            lines.value_error(Reason::Nothing, None);
            return true;
        };
        let number = match self.value_from.get(found) {
            Some(value) => match number::of(value) {
                Ok(number) => number,
                Err(reason) => {
                    lines.value_error(reason, Some(value));
                    return true;
                }
            },
            None if self.block.nil_is_zero => 0.0,
            None => return true,
        };
        self.labels.add(found, &mut labels, true);
        lines.series(&labels, number)
    }

    fn info(&self, found: &Json<'_>, lines: &mut Lines<'_>) {
        let mut labels = Labels::default();
        for element in found.items() {
            labels.clear();
            self.labels.add(element, &mut labels, true);
            if !labels.is_empty() && !lines.series(&labels, 1.0) {
                return;
            }
        }
        let Json::Map(entries) = found else { return };
        for (key, element) in entries {
            labels.clear();
            self.key_label(key, &mut labels);
            self.labels.add(element, &mut labels, true);
            if !labels.is_empty() && !lines.series(&labels, 1.0) {
                return;
            }
        }
    }

    /// Counts each element of a list, each member of a map if its key becomes a label, or otherwise the value itself.
    fn count(&self, found: &Json<'_>, lines: &mut Lines<'_>) {
        let mut one = |key: Option<&str>, value: &Json<'_>| {
            let mut labels = Labels::default();
            if let Some(key) = key {
                labels.set(Cow::Borrowed(&self.block.label_from_key), Cow::Borrowed(key));
            }
            self.labels.add(value, &mut labels, true);
            matches!(value, Json::Null) || lines.count(&labels)
        };
        let _ = match found {
            Json::List(items) => items.iter().all(|item| one(None, item)),
            Json::Map(entries) if !self.block.label_from_key.is_empty() => {
                entries.iter().all(|(key, element)| one(Some(key), element))
            }
            found => one(None, found),
        };
    }

    /// Writes a series for each state. Returns `false` to end the family.
    fn states(&self, found: &Json<'_>, lines: &mut Lines<'_>) -> bool {
        let text = match self.value_from.get(found) {
            None => return true,
            Some(Json::Text(text)) => text,
            Some(other) => {
                lines.value_error(Reason::WrongType, Some(other));
                return true;
            }
        };
        for state in &self.block.list {
            let mut labels = Labels::default();
            labels.set(Cow::Borrowed(&self.block.label_name), Cow::Borrowed(state));
            self.labels.add(found, &mut labels, true);
            if !lines.series(&labels, f64::from(u8::from(text == state))) {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::sync::Arc;

    use crate::cache::Rendered;
    use crate::resources::ObjectBytes;
    use crate::resources::custom::resolve::ResolveOptions;
    use crate::resources::custom::{Definition, ValueError, ValueErrors, load, resolve};
    use crate::util::work_counter::take;

    #[derive(Debug)]
    struct NoErrors;

    impl ValueErrors for NoErrors {
        fn value_error(&self, error: &ValueError<'_>) {
            panic!("{error:?}");
        }
    }

    /// Labels that a map has itself are found once, and not for each of its elements. Their names may all be the same.
    #[test]
    fn work_is_linear_in_the_object() {
        let loaded = load(
            "kind: CustomResourceStateMetrics\nspec: {resources: [{groupVersionKind: {group: e.io, version: v1, kind: K}, \
             metrics: [{name: m, help: h, each: {type: Gauge, gauge: {path: [status], labelFromKey: k, valueFrom: [ready], \
             labelsFromPath: {'*': [labels], ready: [ready]}}}}]}]}",
        );
        let options = ResolveOptions {
            families: Arc::default(),
            keep_duplicates: false,
            errors: Arc::new(NoErrors),
        };
        let served = Definition {
            group: "e.io".into(),
            version: "v1".into(),
            kind: "K".into(),
            plural: "ks".into(),
            namespaced: true,
            ..Definition::default()
        };
        let resolution = resolve(&loaded.config, &[served], &options).expect("metrics");
        let mut text =
            r#"{"metadata":{"name":"n","namespace":"s","uid":"u"},"status":{"labels":{"#.to_owned();
        let signs = ["!", "#", "$", "%", "&", "-", "+", "="];
        let all = signs.iter().flat_map(|a| signs.map(|b| format!("{a}{b}")));
        let pairs: Vec<String> = all.collect();
        for (number, (a, b)) in
            pairs.iter().flat_map(|a| pairs.iter().map(move |b| (a, b))).enumerate()
        {
            let comma = if number > 0 { "," } else { "" };
            let _ = write!(text, r#"{comma}"{a}{b}":"v""#);
        }
        text += "}";
        for number in 0..3_000 {
            let _ = write!(text, r#","e{number}":{{"ready":{number}}}"#);
        }
        text += "}}";
        let mut rendered = Rendered::default();
        take();
        let renderer = &resolution.resources[0].renderer;
        renderer.render(ObjectBytes::Json(text.as_bytes()), &mut rendered).expect("valid");
        let steps = take();
        assert_eq!(rendered.series, 3_000);
        assert!((1_000..text.len() as u64).contains(&steps), "{steps} for {} bytes", text.len());
    }
}
