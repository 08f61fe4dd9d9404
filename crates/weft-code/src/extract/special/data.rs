//! SQL, HTML, CSS, Markdown and configuration.

use weft_core::code::Kind;

use crate::extract::{Found, Frame, Walk, doc};
use crate::language::Language;

impl<'t> Walk<'t, '_> {
    pub(in crate::extract) fn sql(&mut self, f: Frame<'t>) {
        let node = f.node;
        let index = (node.kind() == "create_index")
            .then(|| self.child(node, "identifier"))
            .flatten();
        let name = index
            .or_else(|| self.child(node, "object_reference"))
            .or_else(|| self.field(node, "name"))
            .or_else(|| self.child(node, "identifier"))
            .map(|n| self.text(n).replace(['"', '`'], ""))
            .unwrap_or_default();
        let kind = match node.kind() {
            "create_function" | "create_trigger" => Kind::Function,
            "create_type" => Kind::Type,
            "create_schema" => Kind::Module,
            "create_index" => Kind::Constant,
            _ => Kind::Struct,
        };
        let mut found = Found::new(node, name, kind);
        found.exported = Some(true);
        found.body = self
            .child(node, "column_definitions")
            .or_else(|| self.child(node, "create_query"))
            .or_else(|| self.child(node, "function_body"));
        self.emit(f, found);
    }

    pub(in crate::extract) fn html(&mut self, f: Frame<'t>) {
        let node = f.node;
        let tag = self.child(node, "start_tag");
        let name = tag
            .and_then(|t| self.child(t, "tag_name"))
            .map(|n| self.text(n))
            .unwrap_or_default();
        let heading = matches!(name, "h1" | "h2" | "h3" | "title");
        let id = tag.and_then(|t| {
            let mut cursor = t.walk();
            t.named_children(&mut cursor).find_map(|a| {
                let text = self.text(a);
                text.strip_prefix("id=")
                    .map(|v| v.trim_matches(['"', '\'']).to_owned())
            })
        });
        let title = if heading {
            let text = self.text(node);
            let inner = text.split_once('>').map_or("", |p| p.1);
            doc::fold(inner.split('<').next().unwrap_or_default())
        } else {
            id.map(|i| format!("#{i}")).unwrap_or_default()
        };
        if title.is_empty() {
            return self.descend(f);
        }
        let mut found = Found::new(
            node,
            title.chars().take(120).collect::<String>(),
            Kind::Section,
        );
        found.signature = tag.map(|t| doc::fold(self.text(t)));
        self.emit(f, found);
        self.descend(f);
    }

    pub(in crate::extract) fn css(&mut self, f: Frame<'t>) {
        let node = f.node;
        let name = if node.kind() == "keyframes_statement" {
            self.child(node, "keyframes_name")
                .map(|n| format!("@keyframes {}", self.text(n)))
        } else {
            self.child(node, "selectors")
                .map(|n| self.text(n).to_owned())
        };
        let name: String = doc::fold(&name.unwrap_or_default())
            .chars()
            .take(120)
            .collect();
        self.leaf(f, name, Kind::Section);
    }

    pub(in crate::extract) fn markdown(&mut self, f: Frame<'t>) {
        let node = f.node;
        if node.kind() == "setext_heading" {
            let title = node
                .child_by_field_name("heading_content")
                .map(|n| doc::fold(self.text(n)));
            return self.leaf(f, title.unwrap_or_default(), Kind::Section);
        }
        let heading = node.named_child(0).filter(|h| h.kind() == "atx_heading");
        let Some(heading) = heading else {
            return self.descend(f);
        };
        let title = heading
            .child_by_field_name("heading_content")
            .map(|n| doc::fold(self.text(n)))
            .unwrap_or_default();
        let mut found = Found::new(
            node,
            title.chars().take(150).collect::<String>(),
            Kind::Section,
        );
        found.signature = Some(doc::fold(self.text(heading)));
        let text = self.text(node);
        let after = text.get(heading.byte_range().len()..).unwrap_or_default();
        let paragraph = after.trim_start().split("\n\n").next().unwrap_or_default();
        found.doc = Some(if paragraph.starts_with(['#', '`', '|', '<']) {
            String::new()
        } else {
            paragraph.to_owned()
        });
        self.emit(f, found);
        // Headings are not qualified by those above them: nobody writes them so.
        self.descend(f);
    }

    pub(in crate::extract) fn data(&mut self, f: Frame<'t>) {
        let node = f.node;
        let scope = self.scope(f);
        let depth = if scope.name.is_empty() {
            0
        } else {
            scope.name.matches('\u{1}').count() + 1
        };
        let key = match self.language {
            Language::Toml => node.named_child(0).map(|n| self.text(n)),
            _ => self.field(node, "key").map(|n| self.text(n)),
        };
        let key: String = doc::fold(key.unwrap_or_default().trim_matches(['"', '\'']))
            .chars()
            .take(120)
            .collect();
        if key.is_empty() || depth > 1 {
            return;
        }
        let top = matches!(node.kind(), "table" | "table_array_element") || depth == 0;
        let big = node.end_position().row > node.start_position().row;
        // A scalar below the top is a word of its parent, not an answer.
        if !top && !big {
            return;
        }
        let mut found = Found::new(node, key, Kind::Section);
        let line = self.text(node).lines().next().unwrap_or_default();
        found.signature = Some(doc::fold(line));
        found.inside = big && self.language != Language::Toml && depth == 0;
        self.emit(f, found);
    }
}
