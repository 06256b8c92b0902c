"""The papers' own tables and figures, run again: entries, how they are stored, and the page of evidence."""
