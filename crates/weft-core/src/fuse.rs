//! Several ranked lists into one.
//!
//! Each leg's scores are brought to 0…1 over its own candidates (min–max) and added with weights;
//! measured, that is 2–4 points of MRR better than reciprocal rank fusion with k = 60
//! (`shared/spec/embeddings.md`, section 3). A leg that found nothing changes nothing.

use std::collections::HashMap;
use std::hash::Hash;

/// One leg's list, best first.
#[derive(Clone, Debug)]
pub struct Leg<K> {
    /// What the leg is called in explanations.
    pub name: &'static str,
    /// Its share; shares need not sum to one.
    pub weight: f32,
    /// Candidates with their scores, best first; higher is better.
    pub hits: Vec<(K, f32)>,
}

/// One fused candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Fused<K> {
    /// The candidate.
    pub key: K,
    /// Weighted sum, 0…1 where the weights sum to one.
    pub score: f32,
    /// Which legs found it: name, rank from 1, the leg's own score.
    pub legs: Vec<(&'static str, usize, f32)>,
}

/// Fuses the legs; ties are broken by key, so equal input gives equal output.
pub fn fuse<K: Clone + Eq + Hash + Ord>(legs: &[Leg<K>]) -> Vec<Fused<K>> {
    let total: f32 = legs
        .iter()
        .filter(|l| !l.hits.is_empty())
        .map(|l| l.weight)
        .sum();
    let mut fused: HashMap<K, Fused<K>> = HashMap::new();
    for leg in legs {
        let high = leg.hits.iter().map(|h| h.1).fold(f32::MIN, f32::max);
        let low = leg.hits.iter().map(|h| h.1).fold(f32::MAX, f32::min);
        for (rank, (key, score)) in leg.hits.iter().enumerate() {
            // The worst candidate still beats what the leg did not find at all.
            let norm = if high > low {
                0.02 + 0.98 * (score - low) / (high - low)
            } else {
                1.0
            };
            let f = fused.entry(key.clone()).or_insert_with(|| Fused {
                key: key.clone(),
                score: 0.0,
                legs: Vec::new(),
            });
            f.score += norm * leg.weight / total.max(f32::MIN_POSITIVE);
            f.legs.push((leg.name, rank + 1, *score));
        }
    }
    let mut out: Vec<Fused<K>> = fused.into_values().collect();
    out.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.key.cmp(&b.key)));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg(name: &'static str, hits: &[(u32, f32)]) -> Leg<u32> {
        Leg {
            name,
            weight: 0.5,
            hits: hits.to_vec(),
        }
    }

    #[test]
    fn found_by_both_beats_found_by_one() {
        let f = fuse(&[
            leg("words", &[(1, 9.0), (2, 8.0), (3, 1.0)]),
            leg("vectors", &[(2, 0.9), (4, 0.2)]),
        ]);
        assert_eq!(f[0].key, 2);
        assert_eq!(f[0].legs, [("words", 2, 8.0), ("vectors", 1, 0.9)]);
        assert_eq!(f.len(), 4);
    }

    #[test]
    fn an_empty_leg_changes_nothing_and_ties_are_stable() {
        let one = fuse(&[leg("words", &[(2, 1.0), (1, 1.0)]), leg("vectors", &[])]);
        assert_eq!(one.iter().map(|f| f.key).collect::<Vec<_>>(), [1, 2]);
        assert!((one[0].score - 1.0).abs() < 1e-6);
        assert!(fuse::<u32>(&[]).is_empty());
    }
}
