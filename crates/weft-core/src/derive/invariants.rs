//! What holds of every projection, whatever the rows were.

use std::collections::HashSet;

use super::Projection;

/// The first rule that a projection breaks; `None` where it breaks none.
///
/// The rules are those of the reference's `dev check-invariants`: in each trace, spans stand in the order of
/// their numbers and the first is the root; ids are unique, those of tools in the whole session; links end
/// at spans that are there; the kinds that are counted are those of the spans.
pub fn violation(p: &Projection) -> Option<String> {
    let mut tools = HashSet::new();
    let mut spans = HashSet::new();
    let mut kinds = 0;
    for t in &p.traces {
        let Some(root) = t.spans.first() else {
            return Some(format!("trace {} has no span", t.trace_id));
        };
        if root.kind != "agent" || !root.parent_span_id.is_empty() {
            return Some(format!(
                "{} of trace {} is no root",
                root.span_id, t.trace_id
            ));
        }
        if !t.spans.is_sorted_by(|a, b| a.seq < b.seq) {
            return Some(format!("spans of trace {} are out of order", t.trace_id));
        }
        for s in &t.spans {
            if !spans.insert((t.trace_id.as_str(), s.span_id.as_str())) {
                return Some(format!(
                    "span {} is twice in trace {}",
                    s.span_id, t.trace_id
                ));
            }
            if s.kind == "tool" && !tools.insert(s.span_id.as_str()) {
                return Some(format!("tool span {} is twice", s.span_id));
            }
            kinds += i64::from(!s.call_kind.is_empty());
        }
    }
    for l in &p.links {
        for end in [
            (l.from_trace_id.as_str(), l.from_span_id.as_str()),
            (l.to_trace_id.as_str(), l.to_span_id.as_str()),
        ] {
            if !spans.contains(&end) {
                return Some(format!(
                    "a link {} ends at {} of {}, which is not there",
                    l.kind, end.1, end.0
                ));
            }
        }
    }
    let counted: i64 = p.rollup.kind_counts.values().sum();
    (counted != kinds)
        .then(|| format!("{counted} kinds are counted of {kinds} spans that have one"))
}
