CREATE TABLE sales (
    id     integer PRIMARY KEY,
    event  text    NOT NULL,
    pieces integer NOT NULL
);
