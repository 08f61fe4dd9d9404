//! The keyword index of this machine: BM25 over five fields in tantivy, and a tail that is scored here.
//!
//! tantivy's commits are slow and belong to one process at a time, so they are batched; documents
//! that are not committed yet are given by the store and scored with the same formula and the same
//! statistics. Both stores keep their words in it, so both rank alike.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use tantivy::collector::TopDocs;
use tantivy::query::{
    Bm25StatisticsProvider, BooleanQuery, BoostQuery, ConstScoreQuery, Occur, Query, RangeQuery,
    TermQuery,
};
use tantivy::schema::{
    FAST, Field, INDEXED, IndexRecordOption, STRING, Schema, TextFieldIndexing, TextOptions,
};
use tantivy::tokenizer::{Token, TokenStream, Tokenizer};
use tantivy::{Index, IndexReader, IndexWriter, ReloadPolicy, Searcher, TantivyDocument, Term};
use weft_core::project::cut_bytes;
use weft_core::words;

use crate::documents::{Document, Filter, Role, Subagents, merge_nearest};
use crate::{Result, StoreError};

/// Memory of the indexing arena, bytes.
const ARENA: usize = 50 << 20;
/// Documents in one commit, at most.
pub(crate) const COMMIT_ROWS: usize = 50_000;
/// Text in one commit, bytes, roughly at most: what waits in the indexing queue stays in memory.
pub(crate) const COMMIT_BYTES: usize = 64 << 20;
/// Text of one field whose words are indexed, bytes.
const FIELD_BYTES: usize = 256 << 10;
/// Documents that a search scores from the tail, at most; the newest win.
pub(crate) const TAIL_ROWS: usize = 4_000;

/// Hits whose rows are looked at where a filter asks for what the index does not know.
const ROWS_LOOKED_AT: usize = 5_000;

const K1: f32 = 1.2;
const B: f32 = 0.75;

/// Weight of the words of a field. Chosen on the development halves of LoCoMo and BEAM (`cargo
/// xtask bench quality`); neighbours of these values differ by less than the sets can tell.
const USER: f32 = 1.0;
const ASSISTANT: f32 = 1.0;
/// The user's words together with what they follow on, as one text.
const ASKED: f32 = 2.0;
/// What an answer without words of the user's follows on.
const CONTEXT: f32 = 0.5;
const TOOL: f32 = 0.3;

/// Splits text with [`words::for_each`], so that documents and queries agree.
#[derive(Clone, Default)]
pub(crate) struct WeftTokenizer;

/// The words of a text, one behind the other in one buffer.
pub(crate) struct WeftTokens {
    text: String,
    ends: std::vec::IntoIter<usize>,
    at: usize,
    token: Token,
}

impl Tokenizer for WeftTokenizer {
    type TokenStream<'a> = WeftTokens;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> WeftTokens {
        let mut all = String::with_capacity(text.len() + text.len() / 2);
        let mut ends = Vec::with_capacity(text.len() / 5 + 1);
        words::for_each(text, |w| {
            all.push_str(w);
            ends.push(all.len());
        });
        WeftTokens {
            text: all,
            ends: ends.into_iter(),
            at: 0,
            token: Token {
                position: usize::MAX,
                ..Token::default()
            },
        }
    }
}

impl TokenStream for WeftTokens {
    fn advance(&mut self) -> bool {
        match self.ends.next() {
            Some(end) => {
                self.token.text.clear();
                self.token.text.push_str(&self.text[self.at..end]);
                self.at = end;
                self.token.position = self.token.position.wrapping_add(1);
                true
            }
            None => false,
        }
    }

    fn token(&self) -> &Token {
        &self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        &mut self.token
    }
}

/// Searching by words.
pub trait Words {
    /// Documents with the query's words, by BM25, best first. Documents of every process are found
    /// as soon as they are stored.
    fn word_search(
        &self,
        words: &[String],
        filter: &Filter,
        limit: usize,
    ) -> Result<Vec<(i64, f32)>>;

    /// Commits waiting documents to the keyword index, where no other process does it at this
    /// moment; returns how many. Fewer than `at_least` waiting ones are left in the tail.
    fn index_words(&self, at_least: usize) -> Result<usize>;
}

#[derive(Clone, Copy, Debug)]
struct Fields {
    id: Field,
    user: Field,
    assistant: Field,
    asked: Field,
    context: Field,
    tool: Field,
    session: Field,
    agent: Field,
    model: Field,
    repository: Field,
    thread: Field,
    started_at: Field,
}

fn schema() -> (Schema, Fields) {
    let mut b = Schema::builder();
    let text = TextOptions::default().set_indexing_options(
        TextFieldIndexing::default()
            .set_tokenizer("weft")
            .set_index_option(IndexRecordOption::WithFreqs),
    );
    let fields = Fields {
        id: b.add_i64_field("id", FAST | INDEXED),
        user: b.add_text_field("user", text.clone()),
        assistant: b.add_text_field("assistant", text.clone()),
        asked: b.add_text_field("asked", text.clone()),
        context: b.add_text_field("context", text.clone()),
        tool: b.add_text_field("tool", text),
        session: b.add_text_field("session", STRING),
        agent: b.add_text_field("agent", STRING),
        model: b.add_text_field("model", STRING),
        repository: b.add_text_field("repository", STRING),
        thread: b.add_text_field("thread", STRING),
        started_at: b.add_i64_field("started_at", FAST | INDEXED),
    };
    (b.build(), fields)
}

impl Fields {
    /// Searched fields with their weights, under a role filter.
    fn weighted(&self, role: Option<Role>) -> Vec<(Field, f32)> {
        match role {
            None => vec![
                (self.user, USER),
                (self.assistant, ASSISTANT),
                (self.asked, ASKED),
                (self.context, CONTEXT),
                (self.tool, TOOL),
            ],
            Some(Role::User) => vec![(self.user, 1.0)],
            Some(Role::Assistant) => vec![(self.assistant, 1.0)],
            Some(Role::Tool) => vec![(self.tool, 1.0)],
        }
    }

    fn text<'a>(&self, field: Field, d: &'a Document) -> Cow<'a, str> {
        let asks = !d.user_text.is_empty();
        let cut = |text: &'a str| cut_bytes(text, FIELD_BYTES);
        if field == self.asked && asks {
            return Cow::Owned(format!("{}\n{}", cut(&d.user_text), d.context_text));
        }
        Cow::Borrowed(if field == self.user {
            cut(&d.user_text)
        } else if field == self.assistant {
            cut(&d.assistant_text)
        } else if field == self.context && !asks {
            cut(&d.context_text)
        } else if field == self.tool {
            cut(&d.tool_text)
        } else {
            ""
        })
    }
}

struct Open {
    index: Index,
    reader: IndexReader,
    fields: Fields,
}

/// Handle of the keyword index; it is opened with the first use.
pub(crate) struct WordIndex {
    dir: PathBuf,
    open: Mutex<Option<Arc<Open>>>,
}

impl std::fmt::Debug for WordIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WordIndex")
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

pub(crate) fn failed(e: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt(format!("keyword index: {e}"))
}

impl WordIndex {
    pub(crate) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            open: Mutex::new(None),
        }
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<Open>>> {
        self.open.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Lets go of the files; the next use opens them anew.
    pub(crate) fn forget(&self) {
        *self.slot() = None;
    }

    fn open(&self) -> Result<Arc<Open>> {
        let mut slot = self.slot();
        if let Some(o) = &*slot {
            return Ok(o.clone());
        }
        std::fs::create_dir_all(&self.dir)?;
        let (schema, fields) = schema();
        let dir = tantivy::directory::MmapDirectory::open(&self.dir).map_err(failed)?;
        let index = Index::open_or_create(dir, schema).map_err(failed)?;
        index.tokenizers().register("weft", WeftTokenizer);
        let reader = index
            .reader_builder()
            .reload_policy(ReloadPolicy::Manual)
            .try_into()
            .map_err(failed)?;
        let open = Arc::new(Open {
            index,
            reader,
            fields,
        });
        *slot = Some(open.clone());
        Ok(open)
    }

    /// Verifies the checksums of the index files; the names of damaged ones.
    pub(crate) fn damaged(&self) -> Result<Vec<String>> {
        let o = self.open()?;
        let bad = o.index.validate_checksum().map_err(failed)?;
        Ok(bad.into_iter().map(|p| p.display().to_string()).collect())
    }
}

/// The indexed words of one document against a query, by BM25 as tantivy computes it.
struct TailScorer {
    fields: Vec<(Field, f32)>,
    /// Inverse document frequency by field and word.
    idf: HashMap<(Field, usize), f32>,
    average: HashMap<Field, f32>,
}

fn counts(words: &[String], text: &str) -> (Vec<u32>, u32) {
    let mut found = vec![0; words.len()];
    let mut total = 0;
    words::for_each(text, |w| {
        total += 1;
        if let Some(i) = words.iter().position(|x| x == w) {
            found[i] += 1;
        }
    });
    (found, total)
}

fn tail_scores(
    words: &[String],
    fields: &Fields,
    role: Option<Role>,
    searcher: &Searcher,
    tail: &[(i64, Document)],
) -> Result<Vec<(i64, f32)>> {
    let weighted = fields.weighted(role);
    let indexed = searcher.total_num_docs().map_err(failed)? as f32;
    let all = indexed + tail.len() as f32;
    let counted: Vec<Vec<(Vec<u32>, u32)>> = tail
        .iter()
        .map(|(_, d)| {
            weighted
                .iter()
                .map(|(f, _)| counts(words, &fields.text(*f, d)))
                .collect()
        })
        .collect();
    let mut scorer = TailScorer {
        fields: weighted,
        idf: HashMap::new(),
        average: HashMap::new(),
    };
    for (n, (field, _)) in scorer.fields.iter().enumerate() {
        let tokens = searcher.total_num_tokens(*field).map_err(failed)? as f32
            + counted.iter().map(|d| d[n].1 as f32).sum::<f32>();
        scorer.average.insert(*field, (tokens / all).max(1.0));
        for (i, w) in words.iter().enumerate() {
            let df = searcher
                .doc_freq(&Term::from_field_text(*field, w))
                .map_err(failed)? as f32
                + counted.iter().filter(|d| d[n].0[i] > 0).count() as f32;
            let idf = (1.0 + (all - df + 0.5) / (df + 0.5)).ln();
            scorer.idf.insert((*field, i), idf);
        }
    }
    Ok(tail
        .iter()
        .zip(&counted)
        .map(|((id, _), c)| (*id, scorer.score(c)))
        .filter(|(_, s)| *s > 0.0)
        .collect())
}

impl TailScorer {
    fn score(&self, counted: &[(Vec<u32>, u32)]) -> f32 {
        let mut score = 0.0;
        for ((field, weight), (found, length)) in self.fields.iter().zip(counted) {
            let norm = K1 * (1.0 - B + B * *length as f32 / self.average[field]);
            for (i, tf) in found.iter().enumerate() {
                if *tf > 0 {
                    let tf = *tf as f32;
                    score += weight * self.idf[&(*field, i)] * (1.0 + K1) * tf / (tf + norm);
                }
            }
        }
        score
    }
}

fn word_query(fields: &Fields, words: &[String], role: Option<Role>) -> Box<dyn Query> {
    let mut clauses: Vec<(Occur, Box<dyn Query>)> = Vec::new();
    for (field, weight) in fields.weighted(role) {
        for w in words {
            let term = TermQuery::new(
                Term::from_field_text(field, w),
                IndexRecordOption::WithFreqs,
            );
            clauses.push((
                Occur::Should,
                Box::new(BoostQuery::new(Box::new(term), weight)),
            ));
        }
    }
    Box::new(BooleanQuery::new(clauses))
}

fn term(field: Field, value: &str) -> Box<dyn Query> {
    Box::new(TermQuery::new(
        Term::from_field_text(field, value),
        IndexRecordOption::Basic,
    ))
}

/// The scope of a query as clauses that add nothing to its score.
fn scope(fields: &Fields, filter: &Filter) -> Vec<(Occur, Box<dyn Query>)> {
    let mut clauses: Vec<(Occur, Box<dyn Query>)> = Vec::new();
    let mut must = |q: Box<dyn Query>| {
        clauses.push((Occur::Must, Box::new(ConstScoreQuery::new(q, 0.0))));
    };
    if !filter.sessions.is_empty() {
        let any = filter
            .sessions
            .iter()
            .map(|s| (Occur::Should, term(fields.session, s)))
            .collect();
        must(Box::new(BooleanQuery::new(any)));
    }
    if let Some(a) = &filter.agent {
        must(term(fields.agent, a));
    }
    if let Some(m) = &filter.model {
        must(term(fields.model, m));
    }
    if let Some(r) = &filter.repository {
        must(term(fields.repository, r));
    }
    if filter.since.is_some() || filter.until.is_some() {
        let at = |t| Term::from_field_i64(fields.started_at, t);
        let low = filter.since.map_or(std::ops::Bound::Unbounded, |t| {
            std::ops::Bound::Included(at(t))
        });
        let high = filter.until.map_or(std::ops::Bound::Unbounded, |t| {
            std::ops::Bound::Excluded(at(t))
        });
        must(Box::new(RangeQuery::new(low, high)));
    }
    match filter.subagents {
        Subagents::Include => {}
        Subagents::Exclude => must(term(fields.thread, "main")),
        Subagents::Only => must(term(fields.thread, "sub")),
    }
    clauses
}

/// All spellings under which a repository is found: its identity and its last part.
fn repository_terms(repository: &str) -> Vec<&str> {
    let last = repository.rsplit('/').next().unwrap_or_default();
    let mut terms = vec![repository];
    if last != repository {
        terms.push(last);
    }
    terms.retain(|t| !t.is_empty());
    terms
}

fn to_tantivy(fields: &Fields, id: i64, d: &Document) -> TantivyDocument {
    let mut t = TantivyDocument::default();
    t.add_i64(fields.id, id);
    for (field, _) in fields.weighted(None) {
        t.add_text(field, fields.text(field, d));
    }
    t.add_text(fields.session, &d.session_id);
    t.add_text(fields.agent, &d.agent);
    t.add_text(fields.model, &d.model);
    for r in repository_terms(&d.repository) {
        t.add_text(fields.repository, r);
    }
    let thread = if d.thread_id.is_empty() {
        "main"
    } else {
        "sub"
    };
    t.add_text(fields.thread, thread);
    t.add_i64(fields.started_at, d.started_at);
    t
}

impl WordIndex {
    /// Searches what is committed and what is not. `tail` reads the latter: before the index is looked at,
    /// so that a document that moves in between is seen twice, never not at all. `keep` drops hits that
    /// a filter on rows does not let through.
    pub(crate) fn search(
        &self,
        words: &[String],
        filter: &Filter,
        limit: usize,
        tail: impl FnOnce() -> Result<Vec<(i64, Document)>>,
        keep: impl FnOnce(&mut HashMap<i64, f32>) -> Result<()>,
    ) -> Result<Vec<(i64, f32)>> {
        if words.is_empty() || limit == 0 {
            return Ok(Vec::new());
        }
        // Another process may have rebuilt the files under an open index.
        self.search_open(words, filter, limit, tail, keep)
            .inspect_err(|_| self.forget())
    }

    fn search_open(
        &self,
        words: &[String],
        filter: &Filter,
        limit: usize,
        tail: impl FnOnce() -> Result<Vec<(i64, Document)>>,
        keep: impl FnOnce(&mut HashMap<i64, f32>) -> Result<()>,
    ) -> Result<Vec<(i64, f32)>> {
        let tail = tail()?;
        let open = self.open()?;
        open.reader.reload().map_err(failed)?;
        let searcher = open.reader.searcher();
        let fields = &open.fields;
        let mut clauses = scope(fields, filter);
        let query = word_query(fields, words, filter.role);
        let query: Box<dyn Query> = if clauses.is_empty() {
            query
        } else {
            clauses.push((Occur::Must, query));
            Box::new(BooleanQuery::new(clauses))
        };
        let wanted = if filter.needs_rows() {
            limit.max(ROWS_LOOKED_AT)
        } else {
            limit
        };
        let found = searcher
            .search(&query, &TopDocs::with_limit(wanted).order_by_score())
            .map_err(failed)?;
        let mut hits: HashMap<i64, f32> = HashMap::new();
        for (score, address) in found {
            let segment = searcher.segment_reader(address.segment_ord);
            let ids = segment.fast_fields().i64("id").map_err(failed)?;
            if let Some(id) = ids.first(address.doc_id) {
                hits.insert(id, score);
            }
        }
        if filter.needs_rows() {
            keep(&mut hits)?;
        }
        hits.extend(tail_scores(words, fields, filter.role, &searcher, &tail)?);
        Ok(merge_nearest(vec![hits.into_iter().collect()], limit))
    }

    /// The index for writing; `None` where another process writes it at this moment.
    pub(crate) fn writer(&self) -> Result<Option<WordWriter>> {
        let open = self.open()?;
        match open.index.writer_with_num_threads(1, ARENA) {
            Ok(writer) => Ok(Some(WordWriter {
                writer,
                fields: open.fields,
            })),
            Err(tantivy::TantivyError::LockFailure(..)) => Ok(None),
            Err(e) => Err(failed(e)),
        }
    }

    /// Documents that are committed.
    pub(crate) fn count(&self) -> Result<u64> {
        let open = self.open()?;
        open.reader.reload().map_err(failed)?;
        Ok(open.reader.searcher().num_docs())
    }

    /// What the last commit noted with [`WordWriter::commit`].
    pub(crate) fn note(&self) -> Result<Option<String>> {
        Ok(self.open()?.index.load_metas().map_err(failed)?.payload)
    }
}

/// The keyword index while one process writes it.
pub(crate) struct WordWriter {
    writer: IndexWriter,
    fields: Fields,
}

impl WordWriter {
    /// Adds a document, or replaces it: a crash may have left one committed and not marked.
    pub(crate) fn put(&mut self, id: i64, d: &Document) -> Result<()> {
        self.remove(id);
        let d = to_tantivy(&self.fields, id, d);
        self.writer.add_document(d).map_err(failed)?;
        Ok(())
    }

    /// Removes a document.
    pub(crate) fn remove(&mut self, id: i64) {
        self.writer
            .delete_term(Term::from_field_i64(self.fields.id, id));
    }

    /// Commits, durably, with a note that stands for exactly what is committed.
    pub(crate) fn commit(&mut self, note: Option<&str>) -> Result<()> {
        let mut commit = self.writer.prepare_commit().map_err(failed)?;
        if let Some(note) = note {
            commit.set_payload(note);
        }
        commit.commit().map_err(failed)?;
        Ok(())
    }

    /// Waits for what tantivy merges behind the commits.
    pub(crate) fn finish(self) -> Result<()> {
        self.writer.wait_merging_threads().map_err(failed)
    }
}
