//! Rendering of custom resources.
//!
//! The common labels of an object's series are not known in advance, because users choose the label names. So the
//! series are written in full first, and their common prefix becomes the identity that the [cache](crate::cache) stores
//! once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::de::Error as _;

use crate::cache::{Rendered, Schema};
use crate::resources::kind::{Renderer, UserLabelFamily, UserLabels};
use crate::wire::view::{DecodeError, ObjectBytes};

use super::definition::Definition;
use super::label::Labels;
use super::lines::Lines;
use super::number::Reason;
use super::program::{CompiledMetric, Program};
use super::tree::Json;

/// The values of one object without a series, for one family and one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError<'e> {
    /// The resource name in kstatd's own metrics, such as `widgets.v1.example.io`.
    pub resource: &'e str,
    /// The name of the family.
    pub family: &'e str,
    /// The reason why the values have no series.
    pub reason: Reason,
    /// The path of the metric.
    pub path: &'e str,
    /// The object's namespace, empty for cluster-scoped objects.
    pub namespace: &'e str,
    /// The name of the object.
    pub name: &'e str,
    /// The first value, truncated.
    pub value: &'e str,
    /// The number of values.
    pub count: u64,
    /// The required log verbosity.
    pub log_v: i32,
}

/// A consumer of value errors.
pub trait ValueErrors: Send + Sync {
    /// Receives the errors of one object, family and reason.
    fn value_error(&self, error: &ValueError<'_>);
}

/// The renderer of one kind.
pub(super) struct CustomRenderer {
    schema: Arc<Schema>,
    /// The resource name in kstatd's own metrics.
    resource: String,
    program: Program,
    /// For each metric, the first one with the same name.
    firsts: Vec<usize>,
    /// The labels of items counted beyond the limit of label sets.
    overflow: Vec<u8>,
    keep_duplicates: bool,
    errors: Arc<dyn ValueErrors>,
}

impl CustomRenderer {
    pub(super) fn new(
        schema: Arc<Schema>,
        definition: &Definition,
        program: Program,
        keep_duplicates: bool,
        errors: Arc<dyn ValueErrors>,
    ) -> Self {
        let metrics = program.metrics.iter().enumerate();
        let mut known = HashMap::new();
        let firsts = metrics.map(|(at, metric)| *known.entry(&metric.name).or_insert(at)).collect();
        let mut overflow = vec![b'{'];
        let mut labels = Labels::default();
        labels.set_all(&program.overflow);
        labels.write(&Labels::default(), &mut overflow);
        overflow.push(b'}');
        let resource = definition.dotted_name();
        Self { schema, resource, program, firsts, overflow, keep_duplicates, errors }
    }
}

impl Renderer for CustomRenderer {
    fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.schema)
    }

    fn settings(&self) -> String {
        let Self { keep_duplicates, program, schema, .. } = self;
        format!("{:?}", (keep_duplicates, program, &schema.families))
    }

    fn user_labels(&self) -> Vec<UserLabelFamily> {
        let metrics = self.program.metrics.iter().enumerate();
        let shown = metrics.filter(|(_, metric)| !metric.is_count());
        shown
            .map(|(family, metric)| UserLabelFamily {
                family,
                labels: UserLabels::All(metric.own.clone()),
            })
            .collect()
    }

    fn render(&self, object: ObjectBytes<'_>, out: &mut Rendered) -> Result<(), DecodeError> {
        out.clear();
        let ObjectBytes::Json(bytes) = object else {
            return Err(DecodeError::WireType(Vec::new()));
        };
        let object = Json::read(bytes, &self.program.mask)
            .map_err(|error| DecodeError::Json(serde_json::Error::custom(error)))?;
        let metadata = object.get("metadata");
        let about = |member: &str| {
            metadata.and_then(|metadata| metadata.get(member)?.text()).unwrap_or_default()
        };
        out.uid.extend_from_slice(about("uid").as_bytes());
        out.resource_version.push_str(about("resourceVersion"));
        out.namespace.extend_from_slice(about("namespace").as_bytes());
        let bases: Vec<Labels<'_>> = self
            .program
            .bases
            .iter()
            .map(|base| {
                let mut labels = Labels::default();
                labels.set_all(&base.texts);
                base.sources.add(&object, &mut labels, true);
                labels
            })
            .collect();
        let nothing = Labels::default();
        let mut lines = Lines {
            text: Vec::with_capacity(1024),
            lines: Vec::new(),
            family: 0,
            base: &nothing,
            errors: BTreeMap::new(),
            full: false,
            counted: std::mem::take(&mut out.counted),
            number: 0,
        };
        lines.counted.overflow.clone_from(&self.overflow);
        // The end of each family's lines.
        let mut ends: Vec<usize> = Vec::with_capacity(self.program.metrics.len());
        for (number, metric) in self.program.metrics.iter().enumerate() {
            lines.family = lines.lines.len();
            lines.number = u32::try_from(number).unwrap_or(u32::MAX);
            lines.base = bases.get(metric.base).unwrap_or(&nothing);
            metric.extractor.emit(&object, &mut lines);
            if lines.full {
                lines.discard_family();
                out.oversized.get_or_insert(number);
            }
            if !self.keep_duplicates {
                lines.drop_duplicates(self.firsts[number].checked_sub(1).map_or(0, |at| ends[at]));
            }
            ends.push(lines.lines.len());
            if !lines.errors.is_empty() {
                let errors = std::mem::take(&mut lines.errors);
                self.report(metric, errors, [about("namespace"), about("name")]);
            }
        }
        let line = |at: usize| {
            let (labels, end) = lines.lines.get(at)?;
            Some((&lines.text[labels.clone()], &lines.text[labels.end..*end]))
        };
        template(line, &ends, out);
        out.counted = lines.counted;
        Ok(())
    }
}

impl CustomRenderer {
    #[cold]
    fn report(
        &self,
        metric: &CompiledMetric,
        errors: BTreeMap<Reason, (u64, String)>,
        [namespace, name]: [&str; 2],
    ) {
        for (reason, (count, value)) in errors {
            self.errors.value_error(&ValueError {
                resource: &self.resource,
                family: &metric.name,
                reason,
                path: &metric.path,
                namespace,
                name,
                value: &value,
                count,
                log_v: metric.error_log_v,
            });
        }
    }
}

/// A line: its labels without braces, and its value.
type Line<'t> = (&'t [u8], &'t [u8]);

/// Writes lines in the form of the cache: the common prefix of all labels is the identity. `ends` has the number of
/// lines up to the end of each family.
pub(crate) fn template<'t>(
    line: impl Fn(usize) -> Option<Line<'t>>,
    ends: &[usize],
    out: &mut Rendered,
) {
    let count = ends.last().copied().unwrap_or(0);
    let first = line(0).map_or(&[][..], |(labels, _)| labels);
    let identity = common(first, (1..count).filter_map(|at| Some(line(at)?.0)));
    if identity > 0 {
        out.identity.push(b'{');
        out.identity.extend_from_slice(&first[..identity]);
    }
    let mut at = 0;
    for &end in ends {
        while at < end {
            let Some((labels, value)) = line(at) else { break };
            let rest = &labels[identity..];
            if identity == 0 && !rest.is_empty() {
                out.lines.push(b'{');
            }
            out.lines.extend_from_slice(rest);
            if identity > 0 || !rest.is_empty() {
                out.lines.push(b'}');
            }
            out.lines.push(b' ');
            out.lines.extend_from_slice(value);
            out.lines.push(b'\n');
            at += 1;
        }
        // Far below 4 GiB: see `MAX_TEXT`.
        out.ends.push(u32::try_from(out.lines.len()).unwrap_or(u32::MAX));
    }
    out.series = u32::try_from(count).unwrap_or(u32::MAX);
}

/// Returns the length of the longest prefix of whole labels that `first` and all `others` share, in bytes.
fn common<'t>(first: &[u8], others: impl Iterator<Item = &'t [u8]>) -> usize {
    let same = others.fold(first.len(), |same, other| {
        let pairs = first[..same].iter().zip(other);
        pairs.take_while(|(own, other)| own == other).count()
    });
    // The prefix ends after the closing quote of a label. Quotes inside values are escaped, and label names chosen by
    // users may contain anything, so it must be parsed from the start.
    let (mut within, mut escaped, mut end) = (false, false, 0);
    for (at, byte) in first[..same].iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if within => escaped = true,
            b'"' => {
                within = !within;
                if !within {
                    end = at + 1;
                }
            }
            _ => {}
        }
    }
    end
}
