-- name: count_stuck
-- Unfinished rows that nobody is responsible for, by kind and reason, without sessions: finding these reads their whole table.
SELECT kind, reason, count(*) AS rows FROM stuck WHERE kind <> 'session' GROUP BY kind, reason ORDER BY kind, reason;
