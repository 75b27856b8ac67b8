DELETE FROM {relays} WHERE relay = $1
