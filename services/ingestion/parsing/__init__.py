"""From bytes to sections: one module a format, chosen by `documents.parse`."""
