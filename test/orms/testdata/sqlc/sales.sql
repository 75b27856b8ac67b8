-- name: AddSale :one
INSERT INTO sales (event, pieces) VALUES (?, ?) RETURNING id;

-- name: SetPieces :exec
UPDATE sales SET pieces = ? WHERE id = ?;

-- name: PiecesOf :one
SELECT CAST(coalesce(sum(pieces), 0) AS integer) AS pieces FROM sales WHERE event = ?;
