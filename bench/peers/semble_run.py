#!/usr/bin/env python3
"""Runs the PyPI package `semble` with a local Model2Vec folder on the labelled questions.

usage: semble_run.py MODEL_DIR REPOS_DIR CODE_REPOS.jsonl OUT.jsonl QUESTIONS.jsonl...

Writes results as shared/tools/score_code.py reads them, and prints what indexing and a query cost.
"""
import json, pathlib, sys, time

from semble import SembleIndex

model, repos, listed, out, *questions = sys.argv[1:]
roots = {r["repo"]: r["root"] for r in map(json.loads, open(listed))}
asked = [json.loads(l) for q in questions for l in open(q) if l.strip()]
indexes, cost, query_ms = {}, {}, []
with open(out, "w") as f:
    for a in asked:
        root = pathlib.Path(repos) / a["repo"] / roots[a["repo"]]
        if a["repo"] not in indexes:
            start = time.perf_counter()
            indexes[a["repo"]] = SembleIndex.from_path(root, model_path=model)
            cost[a["repo"]] = time.perf_counter() - start
        start = time.perf_counter()
        found = indexes[a["repo"]].search(a["query"], top_k=50)
        query_ms.append((time.perf_counter() - start) * 1e3)
        results = [
            {"path": r.chunk.file_path, "start": r.chunk.start_line, "end": r.chunk.end_line,
             "tokens": len(r.chunk.content) // 3}
            for r in found
        ]
        f.write(json.dumps({"repo": a["repo"], "query": a["query"], "results": results}) + "\n")
query_ms.sort()
print(f"indexing {len(cost)} repositories: {sum(cost.values()):.1f} s; a query: {query_ms[len(query_ms) // 2]:.1f} ms (median)")
