package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
)

// redisClient makes a client from a URL without its scheme. Several hosts, separated by commas, are
// a cluster, unless the scheme has another meaning.
func redisClient(
	kind string, secure bool, rest string,
) (client redis.UniversalClient, name string, err error) {
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	at := strings.LastIndex(authority, "@") + 1
	hosts := strings.Split(authority[at:], ",")
	scheme := "redis://"
	if secure {
		scheme = "rediss://"
	}
	one := scheme + authority[:at] + hosts[0] + tail
	if kind == "" && len(hosts) == 1 {
		o, err := redis.ParseURL(one)
		if err != nil {
			return nil, "", err
		}
		hurry(&o.MaxRetries, &o.DialerRetries)
		return redis.NewClient(o), fmt.Sprintf("redis %s/%d", o.Addr, o.DB), nil
	}
	for i, host := range hosts[1:] {
		separator := "&"
		if i == 0 && !strings.Contains(one, "?") {
			separator = "?"
		}
		one += separator + "addr=" + url.QueryEscape(host)
	}
	switch kind {
	case "", "+cluster":
		o, err := redis.ParseClusterURL(one)
		if err != nil {
			return nil, "", err
		}
		hurry(&o.MaxRetries, &o.DialerRetries)
		return redis.NewClusterClient(o), "redis cluster " + strings.Join(o.Addrs, ","), nil
	case "+sentinel":
		o, err := redis.ParseFailoverURL(one)
		if err != nil {
			return nil, "", err
		}
		hurry(&o.MaxRetries, &o.DialerRetries)
		return redis.NewFailoverClient(o), fmt.Sprintf("redis %s/%d", o.MasterName, o.DB), nil
	}
	return nil, "", errors.New("no such kind of Redis")
}

// hurry limits the tries of a client to two, unless the URL has another number, because a person
// waits.
func hurry(retries, dials *int) {
	*retries, *dials = cmp.Or(*retries, 1), cmp.Or(*dials, 2)
}
