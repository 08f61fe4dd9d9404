//! The keyword index of one repository: BM25 over name, path, signature, doc and body, and the
//! exact and prefix look-ups of names.
//!
//! Documents are the symbols of file versions. A file version never changes, so documents are only
//! added; which of them an answer may show is decided by the set of versions that are in view.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;
use std::sync::{Arc, RwLock};

use tantivy::collector::{Collector, SegmentCollector};
use tantivy::columnar::Column;
use tantivy::query::{BooleanQuery, BoostQuery, Occur, Query, TermQuery};
use tantivy::schema::{
    FAST, Field, INDEXED, IndexRecordOption, Schema, TextFieldIndexing, TextOptions,
};
use tantivy::{
    DocId, DocSet, Index, IndexReader, IndexWriter, Score, SegmentOrdinal, SegmentReader,
    TERMINATED, TantivyDocument, Term,
};
use weft_core::code::Kind;

use super::View;
use crate::Result;
use crate::words::{WeftTokenizer, failed};

/// Memory of the indexing arena, bytes.
const ARENA: usize = 40 << 20;

/// Weights of the searched fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FieldWeights {
    /// Name, qualified.
    pub name: f32,
    /// Path.
    pub path: f32,
    /// Signature.
    pub signature: f32,
    /// Doc comment.
    pub doc: f32,
    /// Body.
    pub body: f32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields {
    key: Field,
    file: Field,
    facts: Field,
    exact: Field,
    name: Field,
    path: Field,
    signature: Field,
    doc: Field,
    body: Field,
}

/// What the keyword index reads of one symbol.
#[derive(Clone, Debug, Default)]
pub struct SymbolWords {
    /// Names as they are looked up exactly: normalised own name and qualified name.
    pub exact: Vec<String>,
    /// Qualified name.
    pub name: String,
    /// Path.
    pub path: String,
    /// Signature.
    pub signature: String,
    /// Doc comment.
    pub doc: String,
    /// Body.
    pub body: String,
}

fn schema() -> (Schema, Fields) {
    let mut b = Schema::builder();
    let text = |tokenizer: &str| {
        TextOptions::default().set_indexing_options(
            TextFieldIndexing::default()
                .set_tokenizer(tokenizer)
                .set_index_option(IndexRecordOption::WithFreqs),
        )
    };
    let fields = Fields {
        key: b.add_u64_field("key", FAST),
        file: b.add_u64_field("file", INDEXED),
        facts: b.add_u64_field("facts", FAST),
        exact: b.add_text_field("exact", text("raw")),
        name: b.add_text_field("name", text("weft")),
        path: b.add_text_field("path", text("weft")),
        signature: b.add_text_field("signature", text("weft")),
        doc: b.add_text_field("doc", text("weft")),
        body: b.add_text_field("body", text("weft")),
    };
    (b.build(), fields)
}

/// The key of a document: file version and the symbol's place in it.
pub(crate) fn key(file: u32, at: u16) -> u64 {
    u64::from(file) << 16 | u64::from(at)
}

pub(crate) struct CodeWords {
    index: Index,
    reader: IndexReader,
    fields: Fields,
}

pub(crate) struct CodeWordsWriter {
    writer: RwLock<IndexWriter>,
    fields: Fields,
}

/// Which documents an answer may show.
#[derive(Clone, Debug)]
pub struct CodeFilter {
    /// File versions in view.
    pub view: Arc<View>,
    /// Kinds; empty = all.
    pub kinds: Vec<Kind>,
}

impl CodeFilter {
    pub(crate) fn allows(&self, key: u64, facts: u64) -> bool {
        self.view.contains((key >> 16) as u32)
            && (self.kinds.is_empty() || self.kinds.contains(&Kind::from_byte(facts as u8)))
    }
}

/// The best documents under a filter.
struct Best<'a> {
    filter: &'a CodeFilter,
    limit: usize,
}

struct BestOfSegment {
    filter: CodeFilter,
    keys: Column<u64>,
    facts: Column<u64>,
    limit: usize,
    heap: BinaryHeap<Reverse<(Ordered, Reverse<u64>)>>,
}

#[derive(Clone, Copy, PartialEq)]
struct Ordered(f32);

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Collector for Best<'_> {
    type Fruit = Vec<(u64, f32)>;
    type Child = BestOfSegment;

    fn for_segment(
        &self,
        _: SegmentOrdinal,
        segment: &SegmentReader,
    ) -> tantivy::Result<BestOfSegment> {
        Ok(BestOfSegment {
            filter: self.filter.clone(),
            keys: segment.fast_fields().u64("key")?,
            facts: segment.fast_fields().u64("facts")?,
            limit: self.limit,
            heap: BinaryHeap::new(),
        })
    }

    fn requires_scoring(&self) -> bool {
        true
    }

    fn merge_fruits(&self, segments: Vec<Vec<(u64, f32)>>) -> tantivy::Result<Vec<(u64, f32)>> {
        let mut all: Vec<(u64, f32)> = segments.into_iter().flatten().collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all.truncate(self.limit);
        Ok(all)
    }
}

impl SegmentCollector for BestOfSegment {
    type Fruit = Vec<(u64, f32)>;

    fn collect(&mut self, doc: DocId, score: Score) {
        if self.heap.len() >= self.limit && self.heap.peek().is_some_and(|w| score < w.0.0.0) {
            return;
        }
        let Some(key) = self.keys.first(doc) else {
            return;
        };
        if !self
            .filter
            .allows(key, self.facts.first(doc).unwrap_or_default())
        {
            return;
        }
        self.heap.push(Reverse((Ordered(score), Reverse(key))));
        if self.heap.len() > self.limit {
            self.heap.pop();
        }
    }

    fn harvest(self) -> Vec<(u64, f32)> {
        self.heap
            .into_iter()
            .map(|Reverse((s, Reverse(k)))| (k, s.0))
            .collect()
    }
}

impl CodeWords {
    /// Opens or creates the index. One of another version is made anew.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let (schema, fields) = schema();
        let directory = tantivy::directory::MmapDirectory::open(dir).map_err(failed)?;
        let index = Index::open_or_create(directory, schema).map_err(failed)?;
        index.tokenizers().register("weft", WeftTokenizer);
        let reader = index
            .reader_builder()
            .reload_policy(tantivy::ReloadPolicy::Manual)
            .num_warming_threads(0)
            .try_into()
            .map_err(failed)?;
        Ok(Self {
            index,
            reader,
            fields,
        })
    }

    pub(crate) fn reload(&self) -> Result<()> {
        self.reader.reload().map_err(failed)
    }

    pub(crate) fn writer(&self) -> Result<CodeWordsWriter> {
        let writer = self
            .index
            .writer_with_num_threads(1, ARENA)
            .map_err(failed)?;
        Ok(CodeWordsWriter {
            writer: RwLock::new(writer),
            fields: self.fields,
        })
    }

    /// Highest id that was given to a file version at the last commit.
    pub(crate) fn committed(&self) -> Result<u32> {
        let metas = self.index.load_metas().map_err(failed)?;
        Ok(metas
            .payload
            .and_then(|p| p.parse().ok())
            .unwrap_or_default())
    }

    fn weighted(&self, w: &FieldWeights) -> [(Field, f32); 5] {
        let f = &self.fields;
        [
            (f.name, w.name),
            (f.path, w.path),
            (f.signature, w.signature),
            (f.doc, w.doc),
            (f.body, w.body),
        ]
    }

    /// Documents with any of the words, best BM25 first.
    pub(crate) fn search(
        &self,
        words: &[(String, f32)],
        weights: &FieldWeights,
        filter: &CodeFilter,
        limit: usize,
    ) -> Result<Vec<(u64, f32)>> {
        let mut clauses: Vec<(Occur, Box<dyn Query>)> = Vec::new();
        for (field, weight) in self.weighted(weights) {
            if weight <= 0.0 {
                continue;
            }
            for (word, of_word) in words {
                let term = TermQuery::new(
                    Term::from_field_text(field, word),
                    IndexRecordOption::WithFreqs,
                );
                clauses.push((
                    Occur::Should,
                    Box::new(BoostQuery::new(Box::new(term), weight * of_word)),
                ));
            }
        }
        if clauses.is_empty() {
            return Ok(Vec::new());
        }
        let query = BooleanQuery::new(clauses);
        self.reader
            .searcher()
            .search(&query, &Best { filter, limit })
            .map_err(failed)
    }

    /// Documents in which every word stands in one of the first `fields` of name, signature, doc.
    pub(crate) fn with_all(
        &self,
        words: &[String],
        fields: usize,
        filter: &CodeFilter,
        limit: usize,
    ) -> Result<Vec<(u64, f32)>> {
        let f = &self.fields;
        let looked_at = &[f.name, f.signature, f.doc][..fields.clamp(1, 3)];
        let all: Vec<(Occur, Box<dyn Query>)> = words
            .iter()
            .map(|w| {
                let any: Vec<(Occur, Box<dyn Query>)> = looked_at
                    .iter()
                    .map(|field| {
                        let q = TermQuery::new(
                            Term::from_field_text(*field, w),
                            IndexRecordOption::WithFreqs,
                        );
                        (Occur::Should, Box::new(q) as Box<dyn Query>)
                    })
                    .collect();
                (
                    Occur::Must,
                    Box::new(BooleanQuery::new(any)) as Box<dyn Query>,
                )
            })
            .collect();
        if all.is_empty() {
            return Ok(Vec::new());
        }
        self.reader
            .searcher()
            .search(&BooleanQuery::new(all), &Best { filter, limit })
            .map_err(failed)
    }

    /// Documents whose normalised name is `name`, or begins with it.
    pub(crate) fn named(
        &self,
        name: &str,
        prefix: bool,
        filter: &CodeFilter,
        limit: usize,
    ) -> Result<Vec<u64>> {
        let mut out = Vec::new();
        if name.is_empty() {
            return Ok(out);
        }
        let searcher = self.reader.searcher();
        for segment in searcher.segment_readers() {
            let keys = segment.fast_fields().u64("key").map_err(failed)?;
            let facts = segment.fast_fields().u64("facts").map_err(failed)?;
            let inverted = segment.inverted_index(self.fields.exact).map_err(failed)?;
            let mut terms = inverted.terms().range().ge(name.as_bytes()).into_stream()?;
            let mut seen = 0;
            while terms.advance() {
                let is_it = if prefix {
                    terms.key().starts_with(name.as_bytes())
                } else {
                    terms.key() == name.as_bytes()
                };
                // Too common a beginning says nothing.
                if !is_it || seen > 2_000 {
                    break;
                }
                seen += 1;
                let mut docs = inverted
                    .read_postings_from_terminfo(terms.value(), IndexRecordOption::Basic)?;
                let mut doc = docs.doc();
                while doc != TERMINATED {
                    if segment.alive_bitset().is_none_or(|a| a.is_alive(doc))
                        && let Some(k) = keys.first(doc)
                        && filter.allows(k, facts.first(doc).unwrap_or_default())
                    {
                        out.push(k);
                        if out.len() >= limit {
                            return Ok(out);
                        }
                    }
                    doc = docs.advance();
                }
            }
        }
        Ok(out)
    }

    /// In how many documents each word stands, over all fields: rare words say more.
    pub(crate) fn frequencies(&self, words: &[String]) -> Result<(u64, Vec<u64>)> {
        let searcher = self.reader.searcher();
        let mut out = Vec::new();
        for w in words {
            let mut n = 0;
            for field in [self.fields.name, self.fields.signature, self.fields.body] {
                n = searcher
                    .doc_freq(&Term::from_field_text(field, w))
                    .map_err(failed)?
                    .max(n);
            }
            out.push(n);
        }
        Ok((searcher.num_docs(), out))
    }
}

impl CodeWordsWriter {
    /// Adds a symbol's words. Any number of threads may; a commit waits for them.
    pub(crate) fn add(&self, file: u32, at: u16, kind: Kind, words: SymbolWords) -> Result<()> {
        let f = &self.fields;
        let mut d = TantivyDocument::default();
        d.add_u64(f.key, key(file, at));
        d.add_u64(f.file, file.into());
        d.add_u64(f.facts, kind as u64);
        for e in &words.exact {
            d.add_text(f.exact, e);
        }
        d.add_text(f.name, words.name);
        d.add_text(f.path, words.path);
        d.add_text(f.signature, words.signature);
        d.add_text(f.doc, words.doc);
        d.add_text(f.body, words.body);
        let writer = self.writer.read().unwrap_or_else(|e| e.into_inner());
        writer.add_document(d).map_err(failed)?;
        Ok(())
    }

    pub(crate) fn remove(&self, file: u32) {
        let writer = self.writer.read().unwrap_or_else(|e| e.into_inner());
        writer.delete_term(Term::from_field_u64(self.fields.file, file.into()));
    }

    /// Makes what was added durable; `last` is the highest id that was given to a file version.
    pub(crate) fn commit(&self, last: u32) -> Result<()> {
        let mut writer = self.writer.write().unwrap_or_else(|e| e.into_inner());
        let mut prepared = writer.prepare_commit().map_err(failed)?;
        prepared.set_payload(&last.to_string());
        prepared.commit().map_err(failed)?;
        Ok(())
    }

    /// Rewrites the segments that hold removed documents, so that nothing of them stays on the disk.
    pub(crate) fn expunge(&self, index: &CodeWords) -> Result<()> {
        let metas = index.index.searchable_segment_metas().map_err(failed)?;
        let ids: Vec<_> = metas
            .iter()
            .filter(|m| m.num_deleted_docs() > 0)
            .map(tantivy::SegmentMeta::id)
            .collect();
        let mut writer = self.writer.write().unwrap_or_else(|e| e.into_inner());
        if !ids.is_empty() {
            writer.merge(&ids).wait().map_err(failed)?;
        }
        index.reload()?;
        writer.garbage_collect_files().wait().map_err(failed)?;
        Ok(())
    }

    /// Ends the writer when its merges are done.
    pub(crate) fn finish(self) -> Result<()> {
        let writer = self.writer.into_inner().unwrap_or_else(|e| e.into_inner());
        writer.wait_merging_threads().map_err(failed)
    }
}
