//! Writes the glob rules as a Graphviz graph, in the format of statsd_exporter's `--debug.dump-fsm`.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;

use super::config::{MatchType, MetricType, Rule};

/// Returns the graph: one tree per metric type, nodes numbered breadth first, children sorted by name.
pub(super) fn dot(rules: &[Rule]) -> String {
    // Nodes refer to each other by index instead of recursively, because a rule may be deeper than the stack.
    let mut nodes: Vec<BTreeMap<&str, usize>> = vec![BTreeMap::new()];
    for kind in MetricType::ALL {
        let tree = child(&mut nodes, 0, kind.as_str());
        let globs = rules.iter().filter(|rule| {
            rule.match_type == MatchType::Glob && rule.match_metric_type.is_none_or(|of| of == kind)
        });
        for rule in globs {
            rule.pattern.split('.').fold(tree, |node, segment| child(&mut nodes, node, segment));
        }
    }
    let mut out = String::from(
        "digraph g {\nrankdir=LR\nnode [ label=\"\",style=filled,fillcolor=white,shape=circle ]\n",
    );
    let mut queue = VecDeque::from([(0_usize, 0_usize)]);
    let mut count = 0_usize;
    let mut number = 0_usize;
    while let Some((node, depth)) = queue.pop_front() {
        for (segment, &child) in &nodes[node] {
            count += 1;
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{number} -> {count}  [label = \"{segment}\"];");
            if depth == 0 {
                let _ = writeln!(out, "{count} [color=\"#D6B656\",fillcolor=\"#FFF2CC\"];");
            } else if nodes[child].is_empty() {
                let _ = writeln!(out, "{count} [color=\"#82B366\",fillcolor=\"#D5E8D4\"];");
            }
            queue.push_back((child, depth + 1));
        }
        number += 1;
    }
    out.push_str("0 [color=\"#a94442\",fillcolor=\"#f2dede\"];\n}");
    out
}

fn child<'r>(nodes: &mut Vec<BTreeMap<&'r str, usize>>, parent: usize, segment: &'r str) -> usize {
    let next = nodes.len();
    let found = *nodes[parent].entry(segment).or_insert(next);
    if found == next {
        nodes.push(BTreeMap::new());
    }
    found
}
